#!/usr/bin/env bash
# A schedule of the rate sets Adam's first beta. torch 2.13.0, CPU.
# Guess: OneCycleLR and CyclicLR schedule the rate; betas=(0.5, 0.99), as of a GAN, stay.
# Seen: with their default cycle_momentum=True, beta1 is 0.95 as soon as the schedule is made, and moves between 0.85 and
# 0.95 (CyclicLR: 0.8 and 0.9). The 0.5 is not used in any step. With cycle_momentum=False it stays.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.optim.lr_scheduler import CyclicLR, OneCycleLR

for name, make in (
    ("OneCycleLR", lambda o, **options: OneCycleLR(o, 1e-3, total_steps=10, **options)),
    ("CyclicLR", lambda o, **options: CyclicLR(o, 1e-4, 1e-3, step_size_up=5, **options)),
):
    for options in ({}, {"cycle_momentum": False}):
        optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=1e-3, betas=(0.5, 0.99))
        schedule = make(optimizer, **options)
        seen = []
        for _ in range(9):
            seen.append(optimizer.param_groups[0]["betas"][0])
            optimizer.step()
            schedule.step()
        print(f"{name}({options}): beta1 from {min(seen):.3f} to {max(seen):.3f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
OneCycleLR({}): beta1 from 0.850 to 0.950
OneCycleLR({'cycle_momentum': False}): beta1 from 0.500 to 0.500
CyclicLR({}): beta1 from 0.800 to 0.900
CyclicLR({'cycle_momentum': False}): beta1 from 0.500 to 0.500
SEEN
