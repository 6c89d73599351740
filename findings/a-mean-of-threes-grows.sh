#!/usr/bin/env bash
# The mean of a loss that is always 3 grows above 3, and a count of tokens stands still. torchmetrics 1.9.0, torch 2.13.0,
# CPU.
# Guess: MeanMetric of equal values is this value, whatever the weights; SumMetric is off by rounding.
# Seen: both sums are float32. A sum of ones ends at 16,777,216, and one of batches of 512 tokens at 8.6 billion. In a mean,
# the weights stand still there while the values go on, rounded up to the next multiple of 4. `set_dtype(torch.float64)`
# helps.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet torchmetrics==1.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torchmetrics import MeanMetric, SumMetric

tokens = SumMetric()
tokens.update(2**33)
for _ in range(1000):
    tokens.update(512)
print(f"tokens of a thousand batches of 512 behind 2**33: {tokens.compute().item() - 2**33:.0f}")
for dtype in (torch.float32, torch.float64):
    mean = MeanMetric()
    mean.set_dtype(dtype)
    mean.update(torch.tensor(3.0, dtype=dtype), weight=torch.tensor(2**24, dtype=dtype))
    means = []
    for count in range(1, 40_001):
        mean.update(torch.tensor(3.0, dtype=dtype))
        if count % 10_000 == 0:
            means.append(round(mean.compute().item(), 4))
    print(f"mean of 16,777,216 times 3, and of 10,000 more each time, in {dtype}: {means}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
tokens of a thousand batches of 512 behind 2**33: 0
mean of 16,777,216 times 3, and of 10,000 more each time, in torch.float32: [3.0024, 3.0048, 3.0072, 3.0095]
mean of 16,777,216 times 3, and of 10,000 more each time, in torch.float64: [3.0, 3.0, 3.0, 3.0]
SEEN
