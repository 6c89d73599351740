#!/usr/bin/env bash
# The bright half of a 16-bit image becomes negative. torchvision 0.28.0, Pillow 13.0.0, torch 2.13.0.
# Guess: ToTensor scales a 16-bit image, such as a depth map or an X-ray, to [0, 1] as one of 8 bits, or gives its
# numbers.
# Seen: it gives int16, so numbers from 32768 on are negative. pil_to_tensor gives uint16, v2 with scale=True gives [0,
# 1], and Pillow's convert("L") gives 255 for all above 255.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 pillow==13.0.0
"$folder/env/bin/pip" install --quiet --no-deps torchvision==0.28.0
cat > "$folder/tried.py" <<'CODE'
import sys

import numpy
import torch
from PIL import Image

if not hasattr(torch.ops.torchvision, "nms"):  # beside a torch for CPUs; nothing of it is used
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from torchvision import transforms
from torchvision.transforms import v2

Image.fromarray(numpy.array([[0, 300, 32767, 40000, 65535]], dtype=numpy.uint16)).save(f"{sys.argv[1]}/x.png")
image = Image.open(f"{sys.argv[1]}/x.png")
print("ToTensor", transforms.ToTensor()(image).flatten().tolist())
print("pil_to_tensor", transforms.functional.pil_to_tensor(image).flatten().tolist())
scaled = v2.functional.to_dtype(v2.functional.to_image(image), torch.float32, scale=True)
print("v2", [round(value, 4) for value in scaled.flatten().tolist()])
print("convert", numpy.array(image.convert("L")).ravel().tolist())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
ToTensor [0, 300, 32767, -25536, -1]
pil_to_tensor [0, 300, 32767, 40000, 65535]
v2 [0.0, 0.0046, 0.5, 0.6104, 1.0]
convert [0, 255, 255, 255, 255]
SEEN
