#!/usr/bin/env bash
# The first class weighs three times as much as each other one. kornia 0.9.0, torch 2.13.0, CPU.
# Guess: in a focal loss over classes, alpha=0.25 is one factor for all; or, as a number for each class, all have 0.25.
# Seen: class 0 is taken for a background and has 1 - alpha, all other ones have alpha. So which class is number 0 decides
# what is learnt: with alpha=0.25, as in the paper, its errors weigh three times as much. torchvision's has no such rule.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 kornia==0.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from kornia.losses import FocalLoss

logits = torch.zeros(1, 4, 1, 1)
for alpha in (0.25, 0.5, None):
    loss = FocalLoss(alpha=alpha, gamma=2.0, reduction="mean")
    print("alpha", alpha, [round(loss(logits, torch.full((1, 1, 1), each)).item(), 4) for each in range(4)])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
alpha 0.25 [0.1462, 0.0487, 0.0487, 0.0487]
alpha 0.5 [0.0975, 0.0975, 0.0975, 0.0975]
alpha None [0.1949, 0.1949, 0.1949, 0.1949]
SEEN
