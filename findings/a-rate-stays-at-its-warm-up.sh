#!/usr/bin/env bash
# After a warm-up at a tenth of the rate, the rate stays at a tenth. torch 2.13.0, CPU.
# Guess: in a SequentialLR, each schedule after the first one begins at the full rate, as MultiplicativeLR does alone; a factor of 0.9 for
# each step is ExponentialLR(0.9).
# Seen: ExponentialLR and all others begin at the full rate. MultiplicativeLR multiplies the rate that it finds, and that is the one of
# the last warm-up step: a constant tenth is never left, and a linear warm-up ends one step below its peak. With a factor of 1, which
# should hold the rate, a run of any length trains at a tenth of it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.optim import lr_scheduler

def rates(make_first, make_second):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = lr_scheduler.SequentialLR(optimizer, [make_first(optimizer), make_second(optimizer)], [4])
    given = []
    for _ in range(8):
        given.append(round(optimizer.param_groups[0]["lr"], 3))
        optimizer.step()
        schedule.step()
    return given

for warm_up, first in (
    ("constant", lambda optimizer: lr_scheduler.ConstantLR(optimizer, 0.1, total_iters=4)),
    ("linear", lambda optimizer: lr_scheduler.LinearLR(optimizer, 0.2, total_iters=4)),
):
    for name, second in (
        ("ExponentialLR(0.9)", lambda optimizer: lr_scheduler.ExponentialLR(optimizer, 0.9)),
        ("MultiplicativeLR of 0.9", lambda optimizer: lr_scheduler.MultiplicativeLR(optimizer, lambda step: 0.9)),
        ("MultiplicativeLR of 1", lambda optimizer: lr_scheduler.MultiplicativeLR(optimizer, lambda step: 1.0)),
    ):
        print(f"{warm_up}, then {name}: {rates(first, second)}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
constant, then ExponentialLR(0.9): [0.1, 0.1, 0.1, 0.1, 1.0, 0.9, 0.81, 0.729]
constant, then MultiplicativeLR of 0.9: [0.1, 0.1, 0.1, 0.1, 0.09, 0.081, 0.073, 0.066]
constant, then MultiplicativeLR of 1: [0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]
linear, then ExponentialLR(0.9): [0.2, 0.4, 0.6, 0.8, 1.0, 0.9, 0.81, 0.729]
linear, then MultiplicativeLR of 0.9: [0.2, 0.4, 0.6, 0.8, 0.72, 0.648, 0.583, 0.525]
linear, then MultiplicativeLR of 1: [0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8, 0.8]
SEEN
