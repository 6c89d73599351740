#!/usr/bin/env bash
# A polynomial decay raises the rate above its greatest. pytorch_optimizer 4.1.0, torch 2.13.0, CPU.
# Guess: PolyScheduler goes from max_lr after the warm-up to min_lr at t_max, as transformers' polynomial decay does.
# Seen: it multiplies by a power of the steps since the warm-up, in place of those left. With the default order of 0.5
# the rate grows as a root, to 4 times max_lr and more, and goes on growing; with an order of 2 to hundreds of times.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet pytorch_optimizer==4.1.0
cat > "$folder/tried.py" <<'CODE'
import torch
from pytorch_optimizer.lr_scheduler import PolyScheduler

for options in ({}, {"poly_order": 1.0}, {"poly_order": 2.0}):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    schedule = PolyScheduler(optimizer, t_max=20, max_lr=0.1, min_lr=0.0, init_lr=0.0, warmup_steps=2, **options)
    rates = []
    for _ in range(22):
        optimizer.step()
        schedule.step()
        rates.append(round(float(optimizer.param_groups[0]["lr"]), 3))
    print(options, rates[::3])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
{} [0.0, 0.1, 0.2, 0.265, 0.316, 0.361, 0.4, 0.436]
{'poly_order': 1.0} [0.0, 0.1, 0.4, 0.7, 1.0, 1.3, 1.6, 1.9]
{'poly_order': 2.0} [0.0, 0.1, 1.6, 4.9, 10.0, 16.9, 25.6, 36.1]
SEEN
