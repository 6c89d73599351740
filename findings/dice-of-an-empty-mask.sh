#!/usr/bin/env bash
# Whatever a model paints where nothing is, costs nothing. segmentation-models-pytorch 0.6.0, torch 2.13.0, CPU.
# Guess: a prediction of nothing but foreground has a Dice loss near 1 for a mask without any.
# Seen: DiceLoss, JaccardLoss and TverskyLoss multiply the loss of a class that no target of the batch has by 0. Loss and
# gradient are 0: false alarms in empty images are learnt only if the same batch has an image with that class.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet torchvision==0.28.0
"$folder/env/bin/pip" install --quiet segmentation-models-pytorch==0.6.0
cat > "$folder/tried.py" <<'CODE'
import torch

if not hasattr(torch.ops.torchvision, "nms"):  # beside a torch for CPUs; nothing of it is used
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from segmentation_models_pytorch import losses

empty, full = torch.zeros(1, 1, 8, 8), torch.ones(1, 1, 8, 8)
for kind in (losses.DiceLoss, losses.JaccardLoss, losses.TverskyLoss):
    loss_fn = kind(mode="binary")
    for name, mask in (("empty", empty), ("empty and a full one", torch.cat([empty, full]))):
        logits = torch.full_like(mask, 2.0).requires_grad_()
        loss = loss_fn(logits, mask)
        loss.backward()
        print(kind.__name__, f"{name}: loss {loss:.3f}, gradient in the empty image {logits.grad[0].abs().sum():.4f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
DiceLoss empty: loss 0.000, gradient in the empty image 0.0000
DiceLoss empty and a full one: loss 0.362, gradient in the empty image 0.0243
JaccardLoss empty: loss 0.000, gradient in the empty image 0.0000
JaccardLoss empty and a full one: loss 0.532, gradient in the empty image 0.0261
TverskyLoss empty: loss 0.000, gradient in the empty image 0.0000
TverskyLoss empty and a full one: loss 0.362, gradient in the empty image 0.0243
SEEN
