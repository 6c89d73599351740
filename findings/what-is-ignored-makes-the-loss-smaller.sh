#!/usr/bin/env bash
# An image whose half is ignored has half the loss. segmentation-models-pytorch 0.6.0, kornia 0.9.0, torch 2.13.0, CPU.
# Guess: the mean of a loss with ignore_index is the mean over what is not ignored, as that of nn.CrossEntropyLoss is.
# Seen: SoftCrossEntropyLoss and SoftBCEWithLogitsLoss of segmentation-models-pytorch, and focal_loss of kornia, give ignored pixels a
# loss of 0 and divide by all pixels. Crops that are padded to one size, or labelled in part, have a smaller loss and gradient the
# more is ignored, and a validation loss falls with the padding. FocalLoss of segmentation-models-pytorch divides by what counts.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 pillow==13.0.0
"$folder/env/bin/pip" install --quiet --no-deps torchvision==0.28.0
"$folder/env/bin/pip" install --quiet segmentation-models-pytorch==0.6.0 kornia==0.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.nn import functional

if not hasattr(torch.ops.torchvision, "nms"):  # beside a torch for CPUs; nothing of it is used
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from kornia.losses import focal_loss
from segmentation_models_pytorch import losses

torch.manual_seed(0)
scores, classes = torch.randn(2, 4, 32, 32), torch.randint(0, 4, (2, 32, 32))
several, single = scores, scores[:, :1]
for name, loss_of, one in (
    ("torch's cross entropy", lambda scores, classes: functional.cross_entropy(scores, classes, ignore_index=255), False),
    ("SoftCrossEntropyLoss", losses.SoftCrossEntropyLoss(smooth_factor=0.0, ignore_index=255), False),
    ("FocalLoss", losses.FocalLoss("multiclass", ignore_index=255), False),
    ("kornia's focal_loss", lambda scores, classes: focal_loss(scores, classes, None, reduction="mean", ignore_index=255), False),
    ("SoftBCEWithLogitsLoss", losses.SoftBCEWithLogitsLoss(ignore_index=255), True),
):
    found = []
    for ignored in (0, 16, 28):
        target = classes.clone() if not one else (classes[:, None] > 1).float()
        target[..., :ignored, :] = 255
        found.append(round(loss_of(single if one else several, target).item(), 3))
    print(f"{name}: with 0, 16 and 28 of 32 rows ignored {found}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
torch's cross entropy: with 0, 16 and 28 of 32 rows ignored [1.711, 1.718, 1.713]
SoftCrossEntropyLoss: with 0, 16 and 28 of 32 rows ignored [1.711, 0.859, 0.214]
FocalLoss: with 0, 16 and 28 of 32 rows ignored [0.343, 0.343, 0.338]
kornia's focal_loss: with 0, 16 and 28 of 32 rows ignored [0.308, 0.155, 0.038]
SoftBCEWithLogitsLoss: with 0, 16 and 28 of 32 rows ignored [0.827, 0.415, 0.105]
SEEN
