#!/usr/bin/env bash
# A schedule that is resumed by last_epoch= has another rate. torch 2.13.0, CPU.
# Guess: after 10 epochs, an optimizer that is loaded and StepLR(optimizer, 10, last_epoch=9), or 10, go on as they were.
# Seen: the constructor makes a step. With 9 it decays the loaded rate once more, with 10 it counts one epoch too many, so
# later decays come early. An optimizer that is not loaded starts at its full rate, with either. load_state_dict is exact.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import copy

import torch
from torch.optim.lr_scheduler import StepLR

def begin(loaded=None):
    optimizer = torch.optim.SGD([{"params": [torch.nn.Parameter(torch.ones(1))], "initial_lr": 1.0}], lr=1.0)
    if loaded:
        optimizer.load_state_dict(loaded)
    return optimizer

def rates(optimizer, schedule, number):
    seen = []
    for _ in range(number):
        seen.append(f"{optimizer.param_groups[0]['lr']:g}")
        optimizer.step()
        schedule.step()
    return seen

optimizer = begin()
schedule = StepLR(optimizer, 10)
rates(optimizer, schedule, 10)
saved, state = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(schedule.state_dict())
print("goes on:", rates(optimizer, schedule, 11))
for last in (9, 10):
    optimizer = begin(saved)
    print(f"last_epoch={last}:", rates(optimizer, StepLR(optimizer, 10, last_epoch=last), 11))
    optimizer = begin()
    print(f"last_epoch={last}, a fresh optimizer:", rates(optimizer, StepLR(optimizer, 10, last_epoch=last), 11))
optimizer = begin()
schedule = StepLR(optimizer, 10)
optimizer.load_state_dict(saved)
schedule.load_state_dict(state)
print("load_state_dict:", rates(optimizer, schedule, 11))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
goes on: ['0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.01']
last_epoch=9: ['0.01', '0.01', '0.01', '0.01', '0.01', '0.01', '0.01', '0.01', '0.01', '0.01', '0.001']
last_epoch=9, a fresh optimizer: ['0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.01']
last_epoch=10: ['0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.01', '0.01']
last_epoch=10, a fresh optimizer: ['1', '1', '1', '1', '1', '1', '1', '1', '1', '0.1', '0.1']
load_state_dict: ['0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.1', '0.01']
SEEN
