#!/usr/bin/env bash
# Two boxes that are found exactly have an IoU of 0.5. torchmetrics 1.9.0, torch 2.13.0, torchvision 0.28.0, CPU.
# Guess: IntersectionOverUnion matches each box with its target, and takes the mean: 1 for a detector without a fault.
# Seen: it is the mean over all pairs of one label, most of which do not touch. n perfect boxes of a class have 1/n, and a
# detector that leaves out all but one box of an image is better than the perfect one. The same holds for GIoU, DIoU and CIoU.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 torchvision==0.28.0 torchmetrics==1.9.0
cat > "$folder/tried.py" <<'CODE'
import torch

if not hasattr(torch.ops.torchvision, "nms"):  # beside a torch for CPUs; nothing of it is used
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from torchmetrics.detection import GeneralizedIntersectionOverUnion, IntersectionOverUnion

corners = 30.0 * torch.arange(5)[:, None]
boxes = torch.cat([corners, corners, corners + 20, corners + 20], dim=1)
label = torch.ones(5, dtype=torch.long)

def value(kind, found, right):
    metric = kind()
    metric.update([{"boxes": found, "labels": label[: len(found)]}], [{"boxes": right, "labels": label[: len(right)]}])
    return f"{next(iter(metric.compute().values())):.3f}"

for number in (1, 2, 5):
    right = boxes[:number]
    print(number, "boxes found exactly: IoU", value(IntersectionOverUnion, right, right), end=", ")
    print("GIoU", value(GeneralizedIntersectionOverUnion, right, right))
one_off = boxes[:5] + torch.tensor([4.0, 4.0, 4.0, 4.0])
print("5 boxes, a little beside: IoU", value(IntersectionOverUnion, one_off, boxes))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
1 boxes found exactly: IoU 1.000, GIoU 1.000
2 boxes found exactly: IoU 0.500, GIoU 0.160
5 boxes found exactly: IoU 0.200, GIoU -0.454
5 boxes, a little beside: IoU 0.094
SEEN
