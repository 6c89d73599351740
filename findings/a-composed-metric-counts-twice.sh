#!/usr/bin/env bash
# A number of tokens is doubled because their share is logged too. torchmetrics 1.9.0, torch 2.13.0, CPU.
# Guess: `right / seen` is a metric made of two, and an update of a collection updates each of them once.
# Seen: a composition updates its parts each time that it meets them. Beside `seen`, `right / seen` adds to it a second
# time; in `a / (a + b)`, a is updated twice a batch, so that precision made of sums is above the right one. Copies are right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 torchmetrics==1.9.0
cat > "$folder/tried.py" <<'CODE'
from copy import deepcopy

import torch
from torchmetrics import MetricCollection, SumMetric

seen, weight = SumMetric(), SumMetric()
both = MetricCollection({"seen": seen, "seen for each weight": seen / weight}, compute_groups=False)
apart = MetricCollection({"seen": deepcopy(seen), "seen for each weight": seen / weight}, compute_groups=False)
for metrics in (both, apart):
    metrics.reset()
    for tokens in (10.0, 20.0, 30.0):
        metrics.update(torch.tensor(tokens))
    print({name: value.item() for name, value in metrics.compute().items()}, "of 60 tokens")

class Hits(SumMetric):
    def update(self, found, right):
        super().update((found & right).sum())

class FalseAlarms(SumMetric):
    def update(self, found, right):
        super().update((found & ~right).sum())

found, right = torch.tensor([True, True, True, True]), torch.tensor([True, True, False, False])
hits = Hits()
for name, precision in (("hits twice", hits / (hits + FalseAlarms())), ("a copy", hits / (deepcopy(hits) + FalseAlarms()))):
    precision.reset()
    precision.update(found, right)
    print(f"{name}: precision {precision.compute():.3f} of 0.5")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
{'seen': 120.0, 'seen for each weight': 2.0} of 60 tokens
{'seen': 60.0, 'seen for each weight': 1.0} of 60 tokens
hits twice: precision 0.667 of 0.5
a copy: precision 0.500 of 0.5
SEEN
