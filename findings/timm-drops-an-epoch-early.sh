#!/usr/bin/env bash
# A rate is dropped one epoch before its milestone. timm 1.0.31, torch 2.13.0, CPU.
# Guess: MultiStepLRScheduler with decay_t=[3, 6] and torch's MultiStepLR with [3, 6] give the same rates, as timm's
# StepLRScheduler does with decay_t=3.
# Seen: it drops at 2 and 5; one of timm's own two schedules counts from 0 and the other from 1. [1] and [2] are
# the same schedule.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 torchvision==0.28.0 timm==1.0.31
cat > "$folder/tried.py" <<'CODE'
import torch
from timm.scheduler import MultiStepLRScheduler, StepLRScheduler

def rates(make, step):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule, seen = make(optimizer), []
    for epoch in range(8):
        seen.append(round(optimizer.param_groups[0]["lr"], 4))
        optimizer.step()
        step(schedule, epoch)
    return seen

print("torch MultiStepLR [3, 6]       ", rates(lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [3, 6]), lambda s, _: s.step()))
print("timm StepLRScheduler 3         ", rates(lambda o: StepLRScheduler(o, decay_t=3, decay_rate=0.1), lambda s, epoch: s.step(epoch + 1)))
for steps in ([3, 6], [1], [2]):
    seen = rates(lambda o: MultiStepLRScheduler(o, decay_t=steps, decay_rate=0.1), lambda s, epoch: s.step(epoch + 1))
    print(f"timm MultiStepLRScheduler {steps!s:<6}", seen)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
torch MultiStepLR [3, 6]        [1.0, 1.0, 1.0, 0.1, 0.1, 0.1, 0.01, 0.01]
timm StepLRScheduler 3          [1.0, 1.0, 1.0, 0.1, 0.1, 0.1, 0.01, 0.01]
timm MultiStepLRScheduler [3, 6] [1.0, 1.0, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01]
timm MultiStepLRScheduler [1]    [1.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]
timm MultiStepLRScheduler [2]    [1.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]
SEEN
