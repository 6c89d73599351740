#!/usr/bin/env bash
# `float()`, `.item()` and `bool()` of a DTensor's reduction are this rank's own. torch 2.13.0, 2 ranks.
# Guess: a sum of a sharded tensor is its sum, or refuses to be a number before it is reduced.
# Seen: the result is "partial", and becomes a number without a collective: ranks log two totals, and
# `if torch.isfinite(x).all()` takes two ways. `.full_tensor()` first is right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
values = distribute_tensor(torch.tensor([1.0, 2.0, 3.0, float("inf")]), mesh, [Shard(0)])
finite = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)])
seen = [float(finite.sum()), finite.sum().full_tensor().item(), bool(torch.isfinite(values).all())]
ranks = [None, None]
dist.all_gather_object(ranks, seen)
if dist.get_rank() == 0:
    for rank, (own, whole, is_finite) in enumerate(ranks):
        print(f"rank {rank}: float(sum) {own}, full_tensor {whole}, all finite {is_finite}")
dist.destroy_process_group()
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/torchrun" --nproc-per-node=2 "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
rank 0: float(sum) 1.0, full_tensor 6.0, all finite True
rank 1: float(sum) 5.0, full_tensor 6.0, all finite False
SEEN
