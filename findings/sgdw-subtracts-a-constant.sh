#!/usr/bin/env bash
# Weight decay pushes all weights below zero. torch-optimizer 0.3.0, torch 2.13.0, CPU.
# Guess: SGDW is SGD with decoupled weight decay: each step takes lr * weight_decay of a weight from it.
# Seen: it takes lr * weight_decay itself, whatever the weight is. Positive weights shrink, negative ones grow, and without a
# gradient all run to minus infinity. A layer behind it still learns, so a loss curve does not show it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet torch-optimizer==0.3.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torch_optimizer import SGDW

weight = torch.nn.Parameter(torch.tensor([1.0, 0.1, -1.0]))
optimizer = SGDW([weight], lr=0.1, weight_decay=0.1)
for step in range(101):
    if step in (0, 1, 100):
        print("SGDW, step", step, [round(each, 3) for each in weight.tolist()])
    weight.grad = torch.zeros(3)
    optimizer.step()
print("expected at step 100", [round(each * (1 - 0.1 * 0.1) ** 100, 3) for each in (1.0, 0.1, -1.0)])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
SGDW, step 0 [1.0, 0.1, -1.0]
SGDW, step 1 [0.99, 0.09, -1.01]
SGDW, step 100 [0.0, -0.9, -2.0]
expected at step 100 [0.366, 0.037, -0.366]
SEEN
