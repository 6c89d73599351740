#!/usr/bin/env bash
# A classifier that is right with every margin has a hinge loss of 0.5 or more. torchmetrics 1.9.0.
# Guess: BinaryHingeLoss of scores 10 for a positive and -10 for a negative sample is 0, as their margins are above 1.
# Seen: scores outside of 0 to 1 go through a sigmoid first, and no probability is below 0: a negative sample costs at least 1,
# however sure the score. The loss is the part of the negative samples, and with scores of the wrong sign just 1 more.
# scikit-learn gives 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
"$folder/env/bin/pip" install --quiet torchmetrics==1.9.0 scikit-learn==1.9.1
cat > "$folder/tried.py" <<'CODE'
import torch
from sklearn.metrics import hinge_loss
from torchmetrics.classification import BinaryHingeLoss

targets = torch.tensor([1, 0, 0, 0])
for name, scores in {
    "right": [10.0, -10.0, -10.0, -10.0],
    "zeros": [0.0, 0.0, 0.0, 0.0],
    "wrong": [-10.0, 10.0, 10.0, 10.0],
}.items():
    of_metric = BinaryHingeLoss()(torch.tensor(scores), targets).item()
    print(f"{name}: torchmetrics {of_metric:.2f}, scikit-learn {hinge_loss(2 * targets - 1, scores):.2f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
right: torchmetrics 0.75, scikit-learn 0.00
zeros: torchmetrics 1.00, scikit-learn 1.00
wrong: torchmetrics 1.75, scikit-learn 11.00
SEEN
