#!/usr/bin/env bash
# A layer that is thawed is another one on each rank. torch 2.13.0, gloo, 2 ranks.
# Guess: DistributedDataParallel averages the gradient of each parameter that has one, or refuses those that it does not
# know.
# Seen: it notes at its construction which parameters require one. A backbone that is thawed later, or a layer that is
# added, trains on each rank by its own batches, without a word; rank 0's is saved. Wrapped again, both are averaged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
model[0].requires_grad_(False)
for name in ("thawed", "wrapped again"):
    if name == "thawed":
        ranks = DistributedDataParallel(model)
        model[0].requires_grad_(True)
    else:
        ranks = DistributedDataParallel(model)
    model.zero_grad()
    ranks(torch.full((1, 1), float(dist.get_rank() + 1))).sum().backward()
    for place in (0, 1):
        mine = model[place].weight.grad.clone()
        first = mine.clone()
        dist.broadcast(first, 0)
        same = torch.tensor([float(torch.equal(mine, first))])
        dist.all_reduce(same)
        if dist.get_rank() == 0:
            print(f"{name}: gradients of layer {place} are equal on both ranks:", same.item() == 2)
dist.destroy_process_group()
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/torchrun" --nproc-per-node=2 "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
thawed: gradients of layer 0 are equal on both ranks: False
thawed: gradients of layer 1 are equal on both ranks: True
wrapped again: gradients of layer 0 are equal on both ranks: True
wrapped again: gradients of layer 1 are equal on both ranks: True
SEEN
