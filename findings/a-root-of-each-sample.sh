#!/usr/bin/env bash
# A model that is off by 0 and by 2 has a root mean square error of 1. monai 1.6.1, torch 2.13.0, scikit-learn 1.9.1.
# Guess: RMSEMetric is the root of the mean of the squares of what it was given: 1.41.
# Seen: it takes the root for each sample, and then the mean. Of a single number a sample, that is the mean absolute error:
# outliers count no more than others, and the best model by it is another one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 scikit-learn==1.9.1
"$folder/env/bin/pip" install --quiet monai==1.6.1
cat > "$folder/tried.py" <<'CODE'
import torch
from monai.metrics import MAEMetric, MSEMetric, RMSEMetric
from sklearn.metrics import root_mean_squared_error

targets = torch.zeros(4, 1)
for name, predictions in {"steady": [1.1, 1.1, 1.1, 1.1], "with an outlier": [0.0, 0.0, 0.0, 4.0]}.items():
    predictions = torch.tensor(predictions)[:, None]
    seen = {}
    for metric in (RMSEMetric(), MSEMetric(), MAEMetric()):
        metric(predictions, targets)
        seen[type(metric).__name__] = round(metric.aggregate().item(), 2)
    print(f"{name}: {seen}, scikit-learn's root {root_mean_squared_error(targets, predictions):.2f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
steady: {'RMSEMetric': 1.1, 'MSEMetric': 1.21, 'MAEMetric': 1.1}, scikit-learn's root 1.10
with an outlier: {'RMSEMetric': 1.0, 'MSEMetric': 4.0, 'MAEMetric': 1.0}, scikit-learn's root 2.00
SEEN
