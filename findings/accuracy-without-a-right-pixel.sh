#!/usr/bin/env bash
# A model that is always wrong has an accuracy of 0.8. segmentation-models-pytorch 0.6.0, torch 2.13.0, CPU.
# Guess: micro accuracy over classes is the part of pixels that are right, and mean IoU over classes is 0 if none is.
# Seen: accuracy also counts each class that a wrong pixel rightly is not, 8 of 10, in each reduction. With "macro", a class
# that no pixel has or gets has an IoU of 1. micro recall is the part of pixels that are right.
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

from segmentation_models_pytorch import metrics

right = torch.randint(0, 2, (4, 16, 16), generator=torch.Generator().manual_seed(0))
wrong = 1 - right
for classes in (2, 3, 10):
    counts = metrics.get_stats(wrong, right, mode="multiclass", num_classes=classes)
    print(f"{classes} classes:", end=" ")
    for reduction in ("micro", "macro"):
        accuracy = metrics.accuracy(*counts, reduction=reduction)
        print(f"{reduction} accuracy {accuracy:.2f}, IoU {metrics.iou_score(*counts, reduction=reduction):.2f}", end=", ")
    print(f"micro recall {metrics.recall(*counts, reduction='micro'):.2f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
2 classes: micro accuracy 0.00, IoU 0.00, macro accuracy 0.00, IoU 0.00, micro recall 0.00
3 classes: micro accuracy 0.33, IoU 0.00, macro accuracy 0.33, IoU 0.33, micro recall 0.00
10 classes: micro accuracy 0.80, IoU 0.00, macro accuracy 0.80, IoU 0.80, micro recall 0.00
SEEN
