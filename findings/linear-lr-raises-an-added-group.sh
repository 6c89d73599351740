#!/usr/bin/env bash
# A group that is added during a warm-up ends above its rate. torch 2.13.0.
# Guess: a parameter group that `add_param_group` adds with lr=0.1 is at 0.1 after the warm-up, or the scheduler
# leaves it alone, or refuses it.
# Seen: LinearLR and ConstantLR multiply the rate that they find, by the ratio of two factors: a group added at a
# third of the warm-up ends at 0.1 / (factor then). Others, such as ExponentialLR, also move it; LambdaLR raises.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.optim.lr_scheduler import ConstantLR, ExponentialLR, LinearLR

def end(make):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = make(optimizer)
    for step in range(6):
        if step == 2:
            optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.1})
        optimizer.step()
        scheduler.step()
    return [round(group["lr"], 4) for group in optimizer.param_groups]

print("LinearLR", end(lambda optimizer: LinearLR(optimizer, 0.25, total_iters=6)))
print("ConstantLR", end(lambda optimizer: ConstantLR(optimizer, 0.25, total_iters=6)))
print("ExponentialLR", end(lambda optimizer: ExponentialLR(optimizer, 0.5)))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
LinearLR [0.1, 0.2]
ConstantLR [0.1, 0.4]
ExponentialLR [0.0016, 0.0063]
SEEN
