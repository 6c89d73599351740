#!/usr/bin/env bash
# LogCoshError of one value that is 90 off is infinite for the whole data set. torchmetrics 1.9.0, torch 2.13.0, CPU.
# Guess: log(cosh(error)) is near |error| - 0.69 for large errors, as it is chosen for bearing outliers: 89.31.
# Seen: it is computed as log((exp(error) + exp(-error)) / 2), which is infinite from 89.4 on, and in float16 from 11.8 on.
# A month of prices or counts in the hundreds has no finite error. In float64 it holds up to 710.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet torchmetrics==1.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torchmetrics.regression import LogCoshError

for dtype in (torch.float16, torch.float32, torch.float64):
    for error in (10.0, 12.0, 88.0, 90.0, 700.0, 720.0):
        predictions = torch.tensor([0.0, 0.0, error], dtype=dtype)
        value = LogCoshError().set_dtype(dtype)(predictions, torch.zeros(3, dtype=dtype)).item()
        print(f"{dtype}: errors of 0, 0 and {error:.0f}: {value:.1f}, expected {(error - 0.6931) / 3:.1f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
torch.float16: errors of 0, 0 and 10: 3.1, expected 3.1
torch.float16: errors of 0, 0 and 12: inf, expected 3.8
torch.float16: errors of 0, 0 and 88: inf, expected 29.1
torch.float16: errors of 0, 0 and 90: inf, expected 29.8
torch.float16: errors of 0, 0 and 700: inf, expected 233.1
torch.float16: errors of 0, 0 and 720: inf, expected 239.8
torch.float32: errors of 0, 0 and 10: 3.1, expected 3.1
torch.float32: errors of 0, 0 and 12: 3.8, expected 3.8
torch.float32: errors of 0, 0 and 88: 29.1, expected 29.1
torch.float32: errors of 0, 0 and 90: inf, expected 29.8
torch.float32: errors of 0, 0 and 700: inf, expected 233.1
torch.float32: errors of 0, 0 and 720: inf, expected 239.8
torch.float64: errors of 0, 0 and 10: 3.1, expected 3.1
torch.float64: errors of 0, 0 and 12: 3.8, expected 3.8
torch.float64: errors of 0, 0 and 88: 29.1, expected 29.1
torch.float64: errors of 0, 0 and 90: 29.8, expected 29.8
torch.float64: errors of 0, 0 and 700: 233.1, expected 233.1
torch.float64: errors of 0, 0 and 720: inf, expected 239.8
SEEN
