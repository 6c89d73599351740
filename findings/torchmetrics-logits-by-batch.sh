#!/usr/bin/env bash
# The accuracy of the same predictions depends on how they are cut into batches. torchmetrics 1.9.0, torch 2.13.0, CPU.
# Guess: a binary metric takes logits, or probabilities; its value over a data set does not depend on the batch size.
# Seen: each update() looks whether all values of its batch lie in [0, 1]. If so they are probabilities, else logits. A
# small batch of logits that happen to lie there is compared with 0.5 as it is. AUROC is cut in the same way, so that
# logits and probabilities are ranked together.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 torchmetrics==1.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC

logits = torch.tensor([0.3, 0.4, -0.2, 0.45, 0.1, 2.0])
labels = torch.tensor([1, 1, 0, 0, 1, 1])
for metric in (BinaryAccuracy(), BinaryAUROC()):
    for size in (6, 3, 2, 1):
        metric.reset()
        for batch, target in zip(logits.split(size), labels.split(size)):
            metric.update(batch, target)
        print(type(metric).__name__, "in batches of", size, "is", round(float(metric.compute()), 3))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
BinaryAccuracy in batches of 6 is 0.833
BinaryAccuracy in batches of 3 is 0.833
BinaryAccuracy in batches of 2 is 0.5
BinaryAccuracy in batches of 1 is 0.5
BinaryAUROC in batches of 6 is 0.625
BinaryAUROC in batches of 3 is 0.625
BinaryAUROC in batches of 2 is 0.375
BinaryAUROC in batches of 1 is 0.25
SEEN
