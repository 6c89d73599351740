#!/usr/bin/env bash
# One-hot targets give another loss than the same class numbers. torch 2.13.0, CPU.
# Guess: cross_entropy of one-hot rows is that of the numbers, also with class weights; so Mixup only needs soft targets.
# Seen: for numbers, the mean is divided by the weights of the targets, for rows by their number. With weights around 3,
# the loss and so the step are three times as large, and a training loss is not comparable with that of the validation.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.nn import functional

logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0], [1.0, 0.0, 1.0]])
numbers = torch.tensor([0, 1, 2])
rows = functional.one_hot(numbers, 3).float()
for weight in (None, torch.tensor([1.0, 2.0, 6.0])):
    found = [functional.cross_entropy(logits, target, weight) for target in (numbers, rows)]
    print("weights", weight, "numbers", f"{found[0]:.4f}", "rows", f"{found[1]:.4f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
weights None numbers 0.8924 rows 0.8924
weights tensor([1., 2., 6.]) numbers 0.9328 rows 2.7983
SEEN
