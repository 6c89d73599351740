#!/usr/bin/env bash
# The mean squared error of images that differ by 2 everywhere is 64. pytorch-ignite 0.5.5, torch 2.13.0, CPU.
# Guess: ignite's MeanSquaredError and MeanAbsoluteError are means over all numbers, as those of torch and torchmetrics:
# 4 and 2.
# Seen: they sum over an image, or the outputs of a regression, and divide by the number of samples, so that a
# threshold, or a comparison with the loss, depends on the resolution. PSNR in the same library takes the mean.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 pytorch-ignite==0.5.5 torchmetrics==1.9.0
cat > "$folder/tried.py" <<'CODE'
import ignite.metrics
import torch
import torchmetrics


def ignite_of(metric, *batch):
    metric.reset()
    metric.update(batch)
    return round(float(metric.compute()), 3)


for size in (2, 4):
    a, b = torch.zeros(3, 1, size, size), torch.full((3, 1, size, size), 2.0)
    print("size", size, "MSE", ignite_of(ignite.metrics.MeanSquaredError(), a, b),
          "MAE", ignite_of(ignite.metrics.MeanAbsoluteError(), a, b),
          "RMSE", ignite_of(ignite.metrics.RootMeanSquaredError(), a, b),
          "PSNR", ignite_of(ignite.metrics.PSNR(data_range=255.0), a, b),
          "torch", torch.nn.functional.mse_loss(a, b).item(), torchmetrics.MeanAbsoluteError()(a, b).item())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
size 2 MSE 16.0 MAE 8.0 RMSE 4.0 PSNR 42.11 torch 4.0 2.0
size 4 MSE 64.0 MAE 32.0 RMSE 8.0 PSNR 42.11 torch 4.0 2.0
SEEN
