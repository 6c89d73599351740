#!/usr/bin/env bash
# Of two columns of a sharded tensor, four have a value above zero. torch 2.13.0, gloo, 2 ranks.
# Guess: what is computed from a reduced DTensor is what is computed from the whole tensor; DTensor finishes a reduction over
# ranks before it goes on, or goes on only where that makes no difference.
# Seen: `any` is right, and so is the norm of each column. What is summed behind them is not: the ranks' answers are added
# before they are joined. A column with a hit on both ranks counts twice, so that the part of such columns is 2. The sum of
# the columns' norms, the penalty of a group lasso, is the norm of the shards' sums, and too small.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cat > "$folder/tried.py" <<'CODE'
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
whole = torch.tensor([[3.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 4.0]])
shards = distribute_tensor(whole, mesh, [Shard(0)])
for name, of in {
    "columns with a hit": lambda x: (x > 0).any(0),
    "how many": lambda x: (x > 0).any(0).sum(),
    "which part": lambda x: (x > 0).any(0).float().mean(),
    "norms of columns": lambda x: x.norm(dim=0),
    "their sum": lambda x: x.norm(dim=0).sum(),
}.items():
    seen = of(shards).full_tensor()
    if dist.get_rank() == 0:
        print(f"{name}: {[round(value, 2) for value in of(whole).flatten().tolist()]} of the tensor,", f"{[round(value, 2) for value in seen.flatten().tolist()]} of its shards")
dist.destroy_process_group()
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/torchrun" --nproc-per-node=2 "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
columns with a hit: [1, 1] of the tensor, [1, 1] of its shards
how many: [2] of the tensor, [4] of its shards
which part: [1.0] of the tensor, [2.0] of its shards
norms of columns: [3.16, 4.12] of the tensor, [3.16, 4.12] of its shards
their sum: [7.29] of the tensor, [6.4] of its shards
SEEN
