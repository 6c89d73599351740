#!/usr/bin/env bash
# Sharded tensors on a CPU draw the same numbers on each rank. torch 2.13.0, gloo, 2 ranks.
# Guess: DTensor's random operations give what one process would draw, as they do on a GPU.
# Seen: each rank draws from its own generator as it stands. With one seed for all ranks the halves of an
# initialised weight are copies of each other, and dropout drops the same places of each shard.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cat > "$folder/tried.py" <<'CODE'
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(0)
weight = distribute_tensor(torch.zeros(4, 2), mesh, [Shard(0)]).normal_().full_tensor()
mask = torch.nn.functional.dropout(distribute_tensor(torch.ones(16), mesh, [Shard(0)]), 0.5).full_tensor()
torch.manual_seed(0)
alone = torch.zeros(4, 2).normal_()
if dist.get_rank() == 0:
    print("halves of the weight equal", torch.equal(weight[:2], weight[2:]))
    print("halves of the dropout mask equal", torch.equal(mask[:8], mask[8:]))
    print("as one process draws", torch.equal(weight, alone))
dist.destroy_process_group()
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/torchrun" --nproc-per-node=2 "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
halves of the weight equal True
halves of the dropout mask equal True
as one process draws False
SEEN
