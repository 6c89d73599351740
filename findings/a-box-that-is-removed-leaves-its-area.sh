#!/usr/bin/env bash
# A box that is removed leaves its area, its score and its iscrowd to the next box. torchvision 0.28.0, torch 2.13.0, CPU.
# Guess: SanitizeBoundingBoxes removes all that belongs to a box: what has a row for each box, as masks and labels have.
# Seen: it removes rows of boxes, masks, and the first entry with "label" in its name. `area`, `iscrowd` and `scores`, which
# targets of detection carry, keep their rows, so that all behind the removed box are one off. `labels_getter` may return
# several tensors.
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
from torchvision.tv_tensors import BoundingBoxes, Mask

boxes = BoundingBoxes(torch.tensor([[0.0, 0, 0, 0], [0, 0, 2, 2], [0, 0, 4, 4]]), format="XYXY", canvas_size=(8, 8))
target = {
    "boxes": boxes,
    "masks": Mask(torch.ones(3, 8, 8, dtype=torch.uint8)),
    "labels": torch.tensor([1, 2, 3]),
    "area": torch.tensor([0.0, 4.0, 16.0]),
    "iscrowd": torch.tensor([1, 0, 0]),
}
for name, transform in {
    "as it is": v2.SanitizeBoundingBoxes(),
    "with a getter": v2.SanitizeBoundingBoxes(labels_getter=lambda each: (each["labels"], each["area"], each["iscrowd"])),
}.items():
    kept = transform(target)
    print(f"{name}: {len(kept['boxes'])} boxes, {len(kept['masks'])} masks, labels {kept['labels'].tolist()}")
    for box, area, crowd in zip(kept["boxes"].tolist(), kept["area"].tolist(), kept["iscrowd"].tolist(), strict=False):
        print(f"{name}: box {box} has area {area} and iscrowd {crowd}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
as it is: 2 boxes, 2 masks, labels [2, 3]
as it is: box [0.0, 0.0, 2.0, 2.0] has area 0.0 and iscrowd 1
as it is: box [0.0, 0.0, 4.0, 4.0] has area 4.0 and iscrowd 0
with a getter: 2 boxes, 2 masks, labels [2, 3]
with a getter: box [0.0, 0.0, 2.0, 2.0] has area 4.0 and iscrowd 0
with a getter: box [0.0, 0.0, 4.0, 4.0] has area 16.0 and iscrowd 0
SEEN
