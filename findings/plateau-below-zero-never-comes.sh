#!/usr/bin/env bash
# A loss that stands still below zero is no plateau. torch 2.13.0, CPU.
# Guess: ReduceLROnPlateau lowers the rate when the loss has not improved for `patience` epochs, whatever its sign.
# Seen: the default threshold is a share of the best value, and best * (1 - threshold) is above a best below zero. So an
# equal value, and one that is a little worse each time, is "better": the rate never falls, and the best value gets worse.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

for first, slope in ((100.0, 0.0), (-100.0, 0.0), (100.0, 0.005), (-100.0, 0.005)):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=3)
    for epoch in range(12):
        scheduler.step(first + slope * epoch)
    rate = optimizer.param_groups[0]["lr"]
    print(f"loss from {first:g}, {slope:+g} an epoch: rate {rate:g}, best loss {scheduler.best:g}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
loss from 100, +0 an epoch: rate 0.01, best loss 100
loss from -100, +0 an epoch: rate 1, best loss -100
loss from 100, +0.005 an epoch: rate 0.01, best loss 100
loss from -100, +0.005 an epoch: rate 1, best loss -99.945
SEEN
