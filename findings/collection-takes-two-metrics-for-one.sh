#!/usr/bin/env bash
# One of two metrics in a collection is wrong, depending on the first batch. torchmetrics 1.9.0, torch 2.13.0, CPU.
# Guess: MetricCollection shares the counts of metrics that need the same ones, such as precision and recall.
# Seen: it shares those that are equal after the first update, whatever settings made them. If the first batch gives the
# same counts for thresholds of 0.5 and 0.7, only the first metric is updated from then on, and both report its value.
# Here the same two batches come in both orders.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 torchmetrics==1.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryRecall

sure = torch.tensor([0.1, 0.9, 0.95]), torch.tensor([0, 1, 1])
unsure = torch.tensor([0.6, 0.6, 0.2]), torch.tensor([1, 1, 0])
for groups in (True, False):
    for order in ((sure, unsure), (unsure, sure)):
        metrics = {"at_5": BinaryRecall(threshold=0.5), "at_7": BinaryRecall(threshold=0.7)}
        collection = MetricCollection(metrics, compute_groups=groups)
        for batch in order:
            collection.update(*batch)
        found = {name: float(value) for name, value in collection.compute().items()}
        print(f"compute_groups={groups},", "sure first:" if order[0] is sure else "unsure first:", found)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
compute_groups=True, sure first: {'at_5': 1.0, 'at_7': 1.0}
compute_groups=True, unsure first: {'at_5': 1.0, 'at_7': 0.5}
compute_groups=False, sure first: {'at_5': 1.0, 'at_7': 0.5}
compute_groups=False, unsure first: {'at_5': 1.0, 'at_7': 0.5}
SEEN
