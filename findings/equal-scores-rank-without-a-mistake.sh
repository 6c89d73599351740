#!/usr/bin/env bash
# A multi-label model that gives all labels the same score ranks them without a mistake, or with nothing else, by the order of
# the columns. torchmetrics 1.9.0, scikit-learn 1.9.1, torch 2.13.0, CPU.
# Guess: MultilabelRankingLoss counts a pair of equal scores as wrong, as scikit-learn's label_ranking_loss does, or as a half.
# Seen: equal scores are ranked by their column, from the last one down. Where the labels that are true stand last, a constant
# model has a loss of 0; where they stand first, of 1. Sigmoids that have reached 1.0 are such scores.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 scikit-learn==1.9.1
"$folder/env/bin/pip" install --quiet torchmetrics==1.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from sklearn.metrics import label_ranking_loss
from torchmetrics.classification import MultilabelRankingLoss

last = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]])
for name, target in {"true labels in the last columns": last, "true labels in the first columns": last.flip(1)}.items():
    for kind, scores in {
        "constant": torch.full((2, 5), 0.5),
        "sigmoids of 20 to 24": torch.arange(20.0, 25.0).sigmoid().expand(2, 5),
    }.items():
        ours, theirs = MultilabelRankingLoss(5)(scores, target).item(), label_ranking_loss(target, scores)
        print(f"{name}, {kind}: torchmetrics {ours}, scikit-learn {theirs}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
true labels in the last columns, constant: torchmetrics 0.0, scikit-learn 1.0
true labels in the last columns, sigmoids of 20 to 24: torchmetrics 0.0, scikit-learn 1.0
true labels in the first columns, constant: torchmetrics 1.0, scikit-learn 1.0
true labels in the first columns, sigmoids of 20 to 24: torchmetrics 1.0, scikit-learn 1.0
SEEN
