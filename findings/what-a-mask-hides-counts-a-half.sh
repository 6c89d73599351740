#!/usr/bin/env bash
# A segmentation that is right wherever the mask looks has a loss, and the more so the more is hidden. monai 1.6.1, torch
# 2.13.0, CPU.
# Guess: MaskedLoss leaves out what the mask hides, so that a right prediction has a loss of 0.
# Seen: it multiplies the logits by the mask. A hidden logit is 0, and DiceLoss(sigmoid=True) takes it for half a foreground;
# with cross entropy it costs 0.69, and a mean counts it as a place. Give it probabilities, or weigh the loss of each place.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet monai==1.6.1
cat > "$folder/tried.py" <<'CODE'
import torch
from monai.losses import DiceLoss, MaskedLoss
from torch import nn

target = torch.zeros(1, 1, 8, 8)
target[..., 0, :] = 1
logits = 20 * (2 * target - 1)
for shown in (8, 4, 2):
    mask = torch.zeros(1, 1, 8, 8)
    mask[..., :shown, :] = 1
    dice = MaskedLoss(DiceLoss(sigmoid=True))(logits, target, mask)
    of_probabilities = MaskedLoss(DiceLoss())(logits.sigmoid(), target, mask)
    entropy = MaskedLoss(nn.BCEWithLogitsLoss())(logits, target, mask)
    off_by_one = MaskedLoss(nn.MSELoss())(target + 1, target, mask)
    print(f"{shown} of 8 rows are shown: Dice {dice:.2f}, of probabilities {of_probabilities:.2f}, ", end="")
    print(f"cross entropy {entropy:.2f}; squared error where all is off by 1: {off_by_one:.2f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
8 of 8 rows are shown: Dice 0.00, of probabilities 0.00, cross entropy 0.00; squared error where all is off by 1: 1.00
4 of 8 rows are shown: Dice 0.50, of probabilities 0.00, cross entropy 0.35; squared error where all is off by 1: 0.50
2 of 8 rows are shown: Dice 0.60, of probabilities 0.00, cross entropy 0.52; squared error where all is off by 1: 0.25
SEEN
