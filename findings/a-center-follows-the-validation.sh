#!/usr/bin/env bash
# A validation loss moves the center of DINO. lightly 1.6.0, torch 2.13.0, CPU.
# Guess: DINOLoss averages the teacher's outputs of the training; in eval() and no_grad() it computes the loss alone.
# Seen: each call updates the center, whatever the mode. A validation of other images draws it to theirs, and the next
# training step has another loss and another gradient. A copy of the loss for the validation leaves it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet --no-deps torchvision==0.28.0 lightly==1.6.0 lightly-utils==0.0.2
"$folder/env/bin/pip" install --quiet pillow requests tqdm urllib3 pydantic python-dateutil aenum hydra-core pytorch-lightning
cat > "$folder/tried.py" <<'CODE'
import copy

import torch

if not hasattr(torch.ops.torchvision, "nms"):  # beside a torch for CPUs; nothing of it is used
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from lightly.loss import DINOLoss

torch.manual_seed(0)
train = [torch.randn(8, 16) for _ in range(4)]
other = [torch.randn(8, 16) + 3 * torch.arange(16) for _ in range(4)]
for name in ("no validation", "a validation", "a validation by a copy"):
    loss_fn = DINOLoss(output_dim=16)
    loss_fn(train[:2], train[2:], epoch=0)
    if name != "no validation":
        used = copy.deepcopy(loss_fn) if "copy" in name else loss_fn
        used.eval()
        with torch.no_grad():
            used(other[:2], other[2:], epoch=0)
        used.train()
    print(f"{name}: the next training loss {loss_fn(train[:2], train[2:], epoch=0):.2f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
no validation: the next training loss 23.73
a validation: the next training loss 19.31
a validation by a copy: the next training loss 23.73
SEEN
