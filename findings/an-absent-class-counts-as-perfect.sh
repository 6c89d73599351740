#!/usr/bin/env bash
# A class that nobody has and nobody predicts has an IoU of 1. kornia 0.9.0, torch 2.13.0, CPU.
# Guess: mean_iou gives NaN or 0 for a class that is in neither the targets nor the predictions, so that a mean can
# leave it out, as torchmetrics does.
# Seen: it gives 1, so that the mean over classes of a batch is the higher the more classes are absent: 0.13 for two
# classes, and 0.91 if twenty are counted.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 kornia==0.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from kornia.metrics import mean_iou

predicted, target = torch.tensor([[0, 0, 0, 1]]), torch.tensor([[0, 1, 1, 0]])
for classes in (2, 3, 20):
    found = mean_iou(predicted, target, classes)
    print(classes, [round(each, 2) for each in found[0, :4].tolist()], "mean", round(found.mean().item(), 2))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
2 [0.25, 0.0] mean 0.13
3 [0.25, 0.0, 1.0] mean 0.42
20 [0.25, 0.0, 1.0, 1.0] mean 0.91
SEEN
