#!/usr/bin/env bash
# An image is flipped, and its boxes are not. torchvision 0.28.0, torch 2.13.0, CPU.
# Guess: BoundingBoxes and Mask are subclasses of Tensor, which stay what they are in an operation, as torch's
# subclasses do unless told otherwise: `boxes.float()` are boxes.
# Seen: only clone, to, detach and requires_grad_ keep the class. After `.float()`, an index or `torch.cat` they are
# plain tensors, which transforms pass through beside an image, without a word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 pillow==13.0.0 typing-extensions
"$folder/env/bin/pip" install --quiet --no-deps torchvision==0.28.0
cat > "$folder/tried.py" <<'CODE'
import torch

if not hasattr(torch.ops.torchvision, "nms"):  # beside a torch for CPUs; nothing of it is used
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from torchvision.transforms import v2
from torchvision.tv_tensors import BoundingBoxes, Image

image = Image(torch.arange(10).expand(1, 10, 10))
boxes = BoundingBoxes([[1, 1, 3, 3]], format="XYXY", canvas_size=(10, 10))
made = {
    "as made": boxes,
    "to(float32)": boxes.to(torch.float32),
    "float()": boxes.float(),
    "boxes[:1]": boxes[:1],
    "cat": torch.cat([boxes]),
}
for name, each in made.items():
    flipped, found = v2.RandomHorizontalFlip(1.0)(image, each)
    print(name, type(each).__name__, flipped[0, 0, 0].item(), found.tolist())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
as made BoundingBoxes 9 [[7, 1, 9, 3]]
to(float32) BoundingBoxes 9 [[7.0, 1.0, 9.0, 3.0]]
float() Tensor 9 [[1.0, 1.0, 3.0, 3.0]]
boxes[:1] Tensor 9 [[1, 1, 3, 3]]
cat Tensor 9 [[1, 1, 3, 3]]
SEEN
