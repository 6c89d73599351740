#!/usr/bin/env bash
# The box of a mask of one pixel has an area of 0. torchvision 0.28.0, torch 2.13.0, CPU.
# Guess: masks_to_boxes gives boxes of the kind that the other functions of torchvision take: x2 - x1 is the width, so that a mask of
# 4 by 4 pixels has a box of 16.
# Seen: it gives the last pixel, and not the border behind it: 4 by 4 pixels are a box of 9, with an IoU of 0.56 to the box that was
# drawn around them, and an object that is one pixel wide has an IoU of 0 with anything. Detection models refuse such boxes as
# targets, and train on the others a pixel short. Add 1 to the last two numbers.
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

from torchvision.ops import box_area, box_iou, masks_to_boxes

for size in (1, 2, 4, 16):
    mask = torch.zeros(1, 32, 32, dtype=torch.bool)
    mask[:, 8 : 8 + size, 8 : 8 + size] = True
    drawn = torch.tensor([[8.0, 8.0, 8.0 + size, 8.0 + size]])
    boxes = masks_to_boxes(mask)
    print(f"{int(mask.sum())} pixels: box {boxes[0].tolist()}, area {box_area(boxes).item():.0f}", end=", ")
    print(f"IoU with the drawn box {box_iou(boxes, drawn).item():.2f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
1 pixels: box [8.0, 8.0, 8.0, 8.0], area 0, IoU with the drawn box 0.00
4 pixels: box [8.0, 8.0, 9.0, 9.0], area 1, IoU with the drawn box 0.25
16 pixels: box [8.0, 8.0, 11.0, 11.0], area 9, IoU with the drawn box 0.56
256 pixels: box [8.0, 8.0, 23.0, 23.0], area 225, IoU with the drawn box 0.88
SEEN
