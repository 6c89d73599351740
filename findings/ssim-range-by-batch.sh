#!/usr/bin/env bash
# SSIM over a data set depends on the batch size. torchmetrics 1.9.0, torch 2.13.0, CPU.
# Guess: StructuralSimilarityIndexMeasure() is the mean over images, so that batches of any size give the same value.
# Seen: without `data_range=` each update() takes the range of its own batch for the constants of the formula. A dark
# image is judged otherwise beside a bright one. With `data_range=1.0` the value does not depend on the batches.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 torchmetrics==1.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torchmetrics.image import StructuralSimilarityIndexMeasure

torch.manual_seed(0)
images = torch.rand(4, 1, 16, 16) * torch.tensor([0.05, 1.0, 0.05, 1.0]).view(4, 1, 1, 1)  # dark, bright, ...
restored = (images + 0.02 * torch.randn_like(images)).clamp(0, 1)
for settings in ({}, {"data_range": 1.0}):
    for size in (4, 1):
        metric = StructuralSimilarityIndexMeasure(**settings)
        for batch, target in zip(restored.split(size), images.split(size)):
            metric.update(batch, target)
        print(settings, "in batches of", size, "is", round(float(metric.compute()), 2))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
{} in batches of 4 is 0.9
{} in batches of 1 is 0.77
{'data_range': 1.0} in batches of 4 is 0.9
{'data_range': 1.0} in batches of 1 is 0.9
SEEN
