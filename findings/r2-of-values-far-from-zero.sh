#!/usr/bin/env bash
# R2Score and ExplainedVariance of targets far from zero are wrong. torchmetrics 1.9.0, torch 2.13.0, CPU.
# Guess: running sums are kept so that R2 has several right digits, as PearsonCorrCoef and the formula have.
# Seen: they add squares of the targets in float32, and subtract. For a pressure in Pa, of 101325 with a deviation of 100,
# and batches of 32, both come out above 1, which cannot be. set_dtype(torch.float64) helps for values of one dimension;
# for a column, [samples, 1], the sums become float32 again. Values in float64 help in both.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 torchmetrics==1.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torchmetrics.regression import ExplainedVariance, PearsonCorrCoef, R2Score

torch.manual_seed(0)
targets = (101_325 + 100 * torch.randn(100_000, dtype=torch.float64)).float()
predictions = targets + 30 * torch.randn(100_000)
ours, theirs = predictions.double(), targets.double()
right = 1 - ((ours - theirs) ** 2).sum() / ((theirs - theirs.mean()) ** 2).sum()
print(f"by the formula: {right:.2f}")
for kind in (R2Score, ExplainedVariance, PearsonCorrCoef):
    for shape in ((-1,), (-1, 1)):
        found = {}
        for name, metric, dtype in (
            ("as it is", kind(), torch.float32),
            ("set_dtype", kind().set_dtype(torch.float64), torch.float32),
            ("values in float64", kind(), torch.float64),
        ):
            values = (each.reshape(shape).to(dtype) for each in (predictions, targets))
            for batch in zip(*(each.split(32) for each in values)):
                metric.update(*batch)
            value = float(metric.compute())
            found[name] = "above 1" if value > 1 else round(value, 2)
        print(kind.__name__, shape, found)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
by the formula: 0.91
R2Score (-1,) {'as it is': 'above 1', 'set_dtype': 0.91, 'values in float64': 0.91}
R2Score (-1, 1) {'as it is': 'above 1', 'set_dtype': 'above 1', 'values in float64': 0.91}
ExplainedVariance (-1,) {'as it is': 'above 1', 'set_dtype': 0.91, 'values in float64': 0.91}
ExplainedVariance (-1, 1) {'as it is': 'above 1', 'set_dtype': 'above 1', 'values in float64': 0.91}
PearsonCorrCoef (-1,) {'as it is': 0.96, 'set_dtype': 0.96, 'values in float64': 0.96}
PearsonCorrCoef (-1, 1) {'as it is': 0.96, 'set_dtype': 0.96, 'values in float64': 0.96}
SEEN
