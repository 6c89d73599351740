#!/usr/bin/env bash
# A model that always says the same has a Matthews correlation of 0.84. torchmetrics 1.9.0.
# Guess: BinaryMatthewsCorrCoef of constant predictions is 0, as scikit-learn gives it, or NaN.
# Seen: where the denominator is 0, torchmetrics puts a small number on one class and computes on. What comes out depends on
# the number of samples and on the balance of the classes, above 0 for the frequent class and below 0 for the rare one.
# A validation of few samples ranks the model that has collapsed above one that has learnt.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
"$folder/env/bin/pip" install --quiet torchmetrics==1.9.0 scikit-learn==1.9.1
cat > "$folder/tried.py" <<'CODE'
import torch
from sklearn.metrics import matthews_corrcoef
from torchmetrics.classification import BinaryMatthewsCorrCoef, MulticlassMatthewsCorrCoef

for samples in (10, 100, 1000):
    targets = (torch.arange(samples) < samples // 10).long()
    zeros, ones = torch.zeros_like(targets), torch.ones_like(targets)
    print(
        f"{samples} samples: always 0 {BinaryMatthewsCorrCoef()(zeros, targets).item():.2f},",
        f"always 1 {BinaryMatthewsCorrCoef()(ones, targets).item():.2f},",
        f"multiclass {MulticlassMatthewsCorrCoef(2)(zeros, targets).item():.2f},",
        f"scikit-learn {matthews_corrcoef(targets, zeros):.2f}",
    )
learnt, targets = torch.tensor([1, 1, 0, 0, 0, 0, 0, 0, 0, 0]), torch.tensor([1, 0, 0, 0, 0, 0, 0, 0, 0, 0])
print(f"a model that finds the one: {BinaryMatthewsCorrCoef()(learnt, targets).item():.2f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
10 samples: always 0 0.84, always 1 -0.84, multiclass 0.84, scikit-learn 0.00
100 samples: always 0 0.27, always 1 -0.27, multiclass 0.27, scikit-learn 0.00
1000 samples: always 0 0.08, always 1 -0.08, multiclass 0.08, scikit-learn 0.00
a model that finds the one: 0.67
SEEN
