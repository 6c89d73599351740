#!/usr/bin/env bash
# A maximum over ranks has a gradient on each rank. torch 2.13.0, gloo, 2 ranks.
# Guess: torch.distributed.nn.functional.all_reduce(op=MAX), which is made for autograd, gives its gradient to the largest
# value, as torch.amax does; or refuses it.
# Seen: backward reduces the gradients by the same operation, whoever had the maximum. So a max pooling over ranks, as of
# shards of a sequence, moves every rank's value. A product gets the product of gradients. SUM is right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_reduce

dist.init_process_group("gloo")
rank = dist.get_rank()
for name in ("SUM", "MAX", "PRODUCT"):
    x = torch.tensor([2.0 if rank == 0 else 5.0], requires_grad=True)
    total = all_reduce(x, op=getattr(dist.ReduceOp, name))
    total.sum().backward()
    seen = [torch.zeros(1), torch.zeros(1)]
    dist.all_gather(seen, x.grad)
    if rank == 0:
        print(f"{name} of 2 and 5 is {total.item():g}, its gradients are", [each.item() for each in seen])
dist.destroy_process_group()
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/torchrun" --nproc-per-node=2 "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
SUM of 2 and 5 is 7, its gradients are [2.0, 2.0]
MAX of 2 and 5 is 5, its gradients are [1.0, 1.0]
PRODUCT of 2 and 5 is 10, its gradients are [1.0, 1.0]
SEEN
