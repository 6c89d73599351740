#!/usr/bin/env bash
# A key point is one pixel beside its pixel after a rotation. torchvision 0.28.0, torch 2.13.0, CPU.
# Guess: the transforms of v2 move KeyPoints as they move the image, so that flipping twice is a half turn of both.
# Seen: a flip counts from the center of the last pixel, and a rotation, an affine transform or a resize from the border of the
# image: the point (10, 5) of a lit pixel stays with it in flips, and is one pixel beside it in both directions after a half turn.
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
from torchvision.tv_tensors import Image, KeyPoints

image = torch.zeros(3, 50, 100)
image[:, 5, 10] = 1
point = KeyPoints(torch.tensor([[10.0, 5.0]]), canvas_size=(50, 100))
for name, transform in (
    ("two flips", v2.Compose([v2.RandomHorizontalFlip(1.0), v2.RandomVerticalFlip(1.0)])),
    ("a rotation by 180 degrees", v2.RandomRotation((180, 180))),
    ("an affine turn by 180 degrees", v2.RandomAffine((180, 180))),
    ("a rotation by 90 degrees", v2.RandomRotation((90, 90), expand=True)),
):
    turned, moved = transform(Image(image), point)
    row, column = divmod(turned[0].argmax().item(), turned.shape[-1])
    print(f"{name}: the pixel is at ({column}, {row}), the point at {tuple(round(each) for each in moved[0].tolist())}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
two flips: the pixel is at (89, 44), the point at (89, 44)
a rotation by 180 degrees: the pixel is at (89, 44), the point at (90, 45)
an affine turn by 180 degrees: the pixel is at (89, 44), the point at (90, 45)
a rotation by 90 degrees: the pixel is at (5, 89), the point at (5, 90)
SEEN
