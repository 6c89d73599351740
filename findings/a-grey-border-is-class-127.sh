#!/usr/bin/env bash
# A grey border around an image is class 127 in its mask. torchvision 0.28.0, torch 2.13.0, CPU.
# Guess: in v2, `fill=127` is the grey of the image, and what a mask gains is 0, as without `fill`.
# Seen: a number fills images and masks alike: Pad, RandomCrop, RandomRotation, RandomZoomOut and others write 127 into masks,
# which is a class, or one that the model has no output for. A dict has a fill for each type: {Image: 127, Mask: 255}.
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
from torchvision.tv_tensors import Image, Mask

for fill in (0, 127, {Image: 127, Mask: 255}):
    for name, transform in {
        "Pad": v2.Pad(4, fill=fill),
        "RandomCrop": v2.RandomCrop(24, padding=4, fill=fill),
        "RandomRotation": v2.RandomRotation((45, 45), fill=fill),
        "RandomZoomOut": v2.RandomZoomOut(fill=fill, p=1.0),
    }.items():
        torch.manual_seed(0)
        _, mask = transform(Image(torch.full((3, 16, 16), 200, dtype=torch.uint8)), Mask(torch.ones(16, 16, dtype=torch.uint8)))
        print(f"{name}, fill={'a dict' if isinstance(fill, dict) else fill}: classes {mask.unique().tolist()}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
Pad, fill=0: classes [0, 1]
RandomCrop, fill=0: classes [0, 1]
RandomRotation, fill=0: classes [0, 1]
RandomZoomOut, fill=0: classes [0, 1]
Pad, fill=127: classes [1, 127]
RandomCrop, fill=127: classes [1, 127]
RandomRotation, fill=127: classes [1, 127]
RandomZoomOut, fill=127: classes [1, 127]
Pad, fill=a dict: classes [1, 255]
RandomCrop, fill=a dict: classes [1, 255]
RandomRotation, fill=a dict: classes [1, 255]
RandomZoomOut, fill=a dict: classes [1, 255]
SEEN
