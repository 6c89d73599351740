#!/usr/bin/env bash
# A classifier that orders all samples rightly has an AUROC of 0.5, or of 0. torchmetrics 1.9.0.
# Guess: AUROC goes by the order of the scores alone, so that logits of 20 to 35 and of -35 to -20 have the same one.
# Seen: scores outside of 0 to 1 go through a sigmoid in float32 first, where all above 17 are 1: their order is lost, and
# the AUROC is 0.5. With `thresholds=`, it is 0, worse than any guess. Scores far below zero keep their order, as small
# numbers do. In float64, 20 to 35 are right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
"$folder/env/bin/pip" install --quiet torchmetrics==1.9.0 scikit-learn==1.9.1
cat > "$folder/tried.py" <<'CODE'
import torch
from sklearn.metrics import roc_auc_score
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision

targets = torch.tensor([0, 0, 1, 1])
for name, scores in {
    "logits of 20 to 35": torch.tensor([20.0, 25.0, 30.0, 35.0]),
    "logits of -35 to -20": torch.tensor([-35.0, -30.0, -25.0, -20.0]),
    "20 to 35 in float64": torch.tensor([20.0, 25.0, 30.0, 35.0], dtype=torch.float64),
}.items():
    print(
        f"{name}: AUROC {BinaryAUROC()(scores, targets).item():.2f},",
        f"of 100 thresholds {BinaryAUROC(thresholds=100)(scores, targets).item():.2f},",
        f"average precision {BinaryAveragePrecision()(scores, targets).item():.2f},",
        f"scikit-learn {roc_auc_score(targets, scores):.2f}",
    )
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
logits of 20 to 35: AUROC 0.50, of 100 thresholds 0.00, average precision 0.50, scikit-learn 1.00
logits of -35 to -20: AUROC 1.00, of 100 thresholds 0.50, average precision 1.00, scikit-learn 1.00
20 to 35 in float64: AUROC 1.00, of 100 thresholds 0.50, average precision 1.00, scikit-learn 1.00
SEEN
