#!/usr/bin/env bash
# A OneCycleLR that begins later changes the rates before it. torch 2.13.0.
# Guess: in a SequentialLR each schedule rules its own part.
# Seen: OneCycleLR sets the rate and Adam's or SGD's momentum when it is made, so a warm-up that was made for
# 0.5 of 1.0 runs at 0.5 of OneCycleLR's first rate, and momentum 0.9 is 0.95 from the beginning.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.optim.lr_scheduler import ConstantLR, OneCycleLR, SequentialLR, StepLR

def first(make):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0, momentum=0.9)
    SequentialLR(optimizer, [ConstantLR(optimizer, 0.5, 2), make(optimizer)], [2])
    group = optimizer.param_groups[0]
    return round(group["lr"], 3), group["momentum"]

print("before StepLR", first(lambda optimizer: StepLR(optimizer, 2)))
print("before OneCycleLR", first(lambda optimizer: OneCycleLR(optimizer, 2.0, total_steps=6)))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
before StepLR (0.5, 0.9)
before OneCycleLR (0.04, 0.95)
SEEN
