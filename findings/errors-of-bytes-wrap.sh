#!/usr/bin/env bash
# The mean error of two images of bytes is several times too large, or too small. torchmetrics 1.9.0, torcheval 0.0.7, pytorch-ignite 0.5.5, torch 2.13.0, CPU.
# Guess: images of uint8 that differ by 30 everywhere have a mean absolute error of 30, a mean squared error of 900, and
# a PSNR of 18.6, or are refused.
# Seen: differences and squares are taken in uint8, and wrap around at 256. torchmetrics' and ignite's PSNR are right,
# as they convert first; in the same libraries MAE and MSE are not. torcheval's PSNR is 8 dB too good.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 torchmetrics==1.9.0 torcheval==0.0.7 pytorch-ignite==0.5.5
cat > "$folder/tried.py" <<'CODE'
import ignite.metrics
import torch
import torcheval.metrics
import torchmetrics
from torchmetrics.image import PeakSignalNoiseRatio


def ignite_of(metric, *batch):
    metric.reset()
    metric.update(batch)
    return round(float(metric.compute()), 1)


for kind in (torch.float32, torch.uint8):
    a, b = torch.full((1, 1, 16, 16), 10, dtype=kind), torch.full((1, 1, 16, 16), 40, dtype=kind)
    seen = {
        "torchmetrics MAE": torchmetrics.MeanAbsoluteError()(a, b),
        "MSE": torchmetrics.MeanSquaredError()(a, b),
        "PSNR": PeakSignalNoiseRatio(data_range=255.0)(a, b),
        "torcheval MSE": torcheval.metrics.MeanSquaredError().update(a.flatten(), b.flatten()).compute(),
        "its PSNR": torcheval.metrics.PeakSignalNoiseRatio(data_range=255.0).update(a, b).compute(),
    }
    print(kind, {name: round(value.item(), 1) for name, value in seen.items()})
    for metric in (ignite.metrics.MeanAbsoluteError(), ignite.metrics.MeanSquaredError()):
        print("ignite", type(metric).__name__, ignite_of(metric, a.flatten(), b.flatten()))
    print("ignite PSNR", ignite_of(ignite.metrics.PSNR(data_range=255.0), a, b))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
torch.float32 {'torchmetrics MAE': 30.0, 'MSE': 900.0, 'PSNR': 18.6, 'torcheval MSE': 900.0, 'its PSNR': 18.6}
ignite MeanAbsoluteError 30.0
ignite MeanSquaredError 900.0
ignite PSNR 18.6
torch.uint8 {'torchmetrics MAE': 226.0, 'MSE': 132.0, 'PSNR': 18.6, 'torcheval MSE': 132.0, 'its PSNR': 26.9}
ignite MeanAbsoluteError 226.0
ignite MeanSquaredError 132.0
ignite PSNR 18.6
SEEN
