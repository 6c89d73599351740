#!/usr/bin/env bash
# The weight of a pruned layer is the one from before the last step, or from before a load. torch 2.13.0, CPU.
# Guess: layer.weight of a pruned layer is what the layer computes with: the trained weight times the mask.
# Seen: it is a plain tensor that the next forward pass writes anew. After a step, a norm, a histogram or a copy of it is one
# step old; after load_state_dict, it is the one of the fresh model, and not pruned at all. `prune.remove` takes the right one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch import nn
from torch.nn.utils import prune

torch.manual_seed(0)
layer = prune.l1_unstructured(nn.Linear(4, 4), "weight", 0.5)
optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)


def right():
    return layer.weight_orig * layer.weight_mask


for step in range(2):
    layer(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    print(f"after step {step + 1}: weight is what is trained: {torch.equal(layer.weight, right())}, off by {(layer.weight - right()).abs().max().item():.0f}")
fresh = prune.identity(nn.Linear(4, 4), "weight")
fresh.load_state_dict(layer.state_dict())
print(f"after a load: zeros in the weight {(fresh.weight == 0).sum().item()} of 16,", end=" ")
fresh(torch.ones(1, 4))
print(f"after a forward pass {(fresh.weight == 0).sum().item()} of 16")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
after step 1: weight is what is trained: False, off by 1
after step 2: weight is what is trained: False, off by 2
after a load: zeros in the weight 0 of 16, after a forward pass 8 of 16
SEEN
