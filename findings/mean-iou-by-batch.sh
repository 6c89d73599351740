#!/usr/bin/env bash
# The mean IoU of a data set depends on the batch size. torchmetrics 1.9.0, torch 2.13.0, CPU.
# Guess: MeanIoU sums intersections and unions over the data set, or averages over images.
# Seen: it sums them within each batch, and averages over batches, each of which counts the same whatever its size. The
# last, smaller batch counts as much as the others. MulticlassJaccardIndex sums over the data set.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 torchmetrics==1.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torchmetrics.classification import MulticlassJaccardIndex
from torchmetrics.segmentation import MeanIoU

right = torch.tensor([[0, 0, 0, 0], [0, 1, 1, 2], [2, 2, 1, 0], [0, 0, 0, 1], [1, 1, 1, 1]])
found = torch.tensor([[0, 0, 0, 0], [0, 1, 2, 2], [2, 1, 1, 1], [0, 0, 1, 1], [1, 0, 1, 1]])
for size in (5, 4, 2, 1):
    ours, theirs = MeanIoU(num_classes=3, input_format="index"), MulticlassJaccardIndex(3)
    for batch in zip(found.split(size), right.split(size)):
        ours.update(*batch)
        theirs.update(*batch)
    print(f"in batches of {size}: MeanIoU {ours.compute():.3f}, MulticlassJaccardIndex {theirs.compute():.3f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
in batches of 5: MeanIoU 0.582, MulticlassJaccardIndex 0.582
in batches of 4: MeanIoU 0.491, MulticlassJaccardIndex 0.582
in batches of 2: MeanIoU 0.519, MulticlassJaccardIndex 0.582
in batches of 1: MeanIoU 0.523, MulticlassJaccardIndex 0.582
SEEN
