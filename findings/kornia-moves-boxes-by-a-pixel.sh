#!/usr/bin/env bash
# Boxes are flipped one pixel too far. kornia 0.9.0, torchvision 0.28.0, torch 2.13.0, CPU.
# Guess: an augmentation moves boxes as it moves the image: a box around the object is around it afterwards.
# Seen: boxes of "bbox_xyxy" are moved as centers of pixels are: a flip or a half turn puts them one pixel to the left or above
# of the object, and a Resize counts one pixel less. An object of 4 pixels keeps an IoU of 0.39 with its box.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 pillow==13.0.0 typing-extensions
"$folder/env/bin/pip" install --quiet --no-deps torchvision==0.28.0
"$folder/env/bin/pip" install --quiet kornia==0.9.0
cat > "$folder/tried.py" <<'CODE'
import kornia.augmentation as K
import torch

if not hasattr(torch.ops.torchvision, "nms"):  # beside a torch for CPUs; nothing of it is used
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from torchvision.ops import box_iou
from torchvision.transforms import v2
from torchvision.tv_tensors import BoundingBoxes, Image

image = torch.zeros(1, 3, 50, 100)
image[..., 20:24, 10:14] = 1
box = torch.tensor([[10.0, 20.0, 14.0, 24.0]])

def around(image):
    rows, columns = torch.where(image[0] > 0.5)
    return torch.tensor([[columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]]).float()

def numbers(box):
    return [round(each, 1) for each in box.flatten().tolist()]

for name, ours, theirs in (
    ("horizontal flip", K.RandomHorizontalFlip(p=1.0), v2.RandomHorizontalFlip(1.0)),
    ("vertical flip", K.RandomVerticalFlip(p=1.0), v2.RandomVerticalFlip(1.0)),
    ("half turn", K.RandomRotation((180.0, 180.0), p=1.0), v2.RandomRotation((180, 180))),
    ("resize", K.Resize((100, 200)), v2.Resize((100, 200))),
):
    turned, moved = K.AugmentationSequential(ours, data_keys=["input", "bbox_xyxy"])(image, box[None])
    moved = moved.reshape(1, 4)
    other, beside = theirs(Image(image[0]), BoundingBoxes(box, format="XYXY", canvas_size=(50, 100)))
    print(f"{name}: the object is in {numbers(around(turned[0]))}, kornia's box {numbers(moved)},", end=" ")
    print(f"IoU {box_iou(around(turned[0]), moved).item():.2f}, torchvision's {box_iou(around(other), beside).item():.2f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
horizontal flip: the object is in [86.0, 20.0, 90.0, 24.0], kornia's box [85.0, 20.0, 89.0, 24.0], IoU 0.60, torchvision's 1.00
vertical flip: the object is in [10.0, 26.0, 14.0, 30.0], kornia's box [10.0, 25.0, 14.0, 29.0], IoU 0.60, torchvision's 1.00
half turn: the object is in [86.0, 26.0, 90.0, 30.0], kornia's box [85.0, 25.0, 89.0, 29.0], IoU 0.39, torchvision's 1.00
resize: the object is in [20.0, 40.0, 28.0, 48.0], kornia's box [20.1, 40.4, 28.1, 48.5], IoU 0.87, torchvision's 1.00
SEEN
