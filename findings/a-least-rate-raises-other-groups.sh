#!/usr/bin/env bash
# A cosine with eta_min raises the rate of a group that is below it. torch 2.13.0, CPU.
# Guess: a schedule that anneals never raises a rate; eta_min is a floor that rates above it come down to.
# Seen: each group goes from its own rate to eta_min, up as well as down. With layer-wise rates, the lowest layers, which
# are to move least, go from 1e-7 to 1e-5 like the head. CosineAnnealingWarmRestarts does the same. A LambdaLR
# has a factor of each group's rate.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, CosineAnnealingWarmRestarts, ReduceLROnPlateau

for name, schedule in {
    "CosineAnnealingLR": lambda optimizer: CosineAnnealingLR(optimizer, T_max=4, eta_min=1e-5),
    "CosineAnnealingWarmRestarts": lambda optimizer: CosineAnnealingWarmRestarts(optimizer, T_0=5, eta_min=1e-5),
    "ReduceLROnPlateau": lambda optimizer: ReduceLROnPlateau(optimizer, min_lr=1e-5, patience=0),
}.items():
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": rate} for rate in (1e-3, 1e-7)]
    optimizer = torch.optim.SGD(groups)
    scheduler = schedule(optimizer)
    rates = []
    for _ in range(5):
        rates.append([f"{group['lr']:.0e}" for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step(*([1.0] if name.startswith("Reduce") else []))
    head, lowest = zip(*rates, strict=True)
    print(f"{name}: head {list(head)}, lowest layers {list(lowest)}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
CosineAnnealingLR: head ['1e-03', '9e-04', '5e-04', '2e-04', '1e-05'], lowest layers ['1e-07', '2e-06', '5e-06', '9e-06', '1e-05']
CosineAnnealingWarmRestarts: head ['1e-03', '9e-04', '7e-04', '4e-04', '1e-04'], lowest layers ['1e-07', '1e-06', '4e-06', '7e-06', '9e-06']
ReduceLROnPlateau: head ['1e-03', '1e-03', '1e-04', '1e-05', '1e-05'], lowest layers ['1e-07', '1e-07', '1e-07', '1e-07', '1e-07']
SEEN
