#!/usr/bin/env bash
# MinMaxMetric, called with each batch, gives the last batch for the whole epoch, and reset() keeps its bounds.
# torchmetrics 1.9.0, torch 2.13.0, CPU.
# Guess: a call with a batch returns the batch's value and adds the batch to the epoch, as for each other metric; max is the
# best epoch; reset() sets the bounds back, as it says.
# Seen: a call forgets the batches before it, so that compute() is the value of the last batch, and max that of one lucky batch.
# With update() in place of calls, values are right. reset() leaves both bounds as they are.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet torchmetrics==1.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torchmetrics import MeanMetric
from torchmetrics.wrappers import MinMaxMetric


def numbers(values):
    return {name: round(value.item(), 4) for name, value in values.items()}


for name in ("called with each batch", "updated with each batch"):
    metric = MinMaxMetric(MeanMetric())
    for accuracies in ([0.25, 1.0, 0.25], [0.75, 0.75, 0.75]):
        for accuracy in accuracies:
            (metric if name.startswith("called") else metric.update)(torch.tensor(accuracy))
        print(f"{name}: an epoch of {accuracies}: {numbers(metric.compute())}")
        metric.reset()
    metric.update(torch.tensor(0.6))
    print(f"{name}: behind reset(), a value of 0.6: {numbers(metric.compute())}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
called with each batch: an epoch of [0.25, 1.0, 0.25]: {'raw': 0.25, 'max': 1.0, 'min': 0.25}
called with each batch: an epoch of [0.75, 0.75, 0.75]: {'raw': 0.75, 'max': 1.0, 'min': 0.25}
called with each batch: behind reset(), a value of 0.6: {'raw': 0.6, 'max': 1.0, 'min': 0.25}
updated with each batch: an epoch of [0.25, 1.0, 0.25]: {'raw': 0.5, 'max': 0.5, 'min': 0.5}
updated with each batch: an epoch of [0.75, 0.75, 0.75]: {'raw': 0.75, 'max': 0.75, 'min': 0.5}
updated with each batch: behind reset(), a value of 0.6: {'raw': 0.6, 'max': 0.75, 'min': 0.5}
SEEN
