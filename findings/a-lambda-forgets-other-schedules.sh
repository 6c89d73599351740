#!/usr/bin/env bash
# A schedule beside a LambdaLR has no effect. torch 2.13.0, CPU.
# Guess: schedules of one optimizer multiply, as torch says of chained ones: a warm-up and a decay, a decay and a plateau.
# Seen: LambdaLR, CyclicLR, OneCycleLR and CosineAnnealingWarmRestarts set the rate from the first one. A ConstantLR before
# a LambdaLR is lost, and a plateau lasts until the next step; before warm restarts, the factor at the end of a warm-up
# remains and doubles a rate. ExponentialLR multiplies.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.optim.lr_scheduler import ChainedScheduler, ConstantLR, CosineAnnealingWarmRestarts, ExponentialLR, LambdaLR, ReduceLROnPlateau

def rates(make, plateau=False):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    schedule = make(optimizer)
    reduce = ReduceLROnPlateau(optimizer, patience=1)
    seen = []
    for _ in range(7):
        seen.append(f"{optimizer.param_groups[0]['lr']:.3g}")
        optimizer.step()
        schedule.step()
        if plateau:
            reduce.step(1.0)
    return " ".join(seen)

warm = lambda optimizer: ConstantLR(optimizer, 0.5, total_iters=3)
exponential = lambda optimizer: ExponentialLR(optimizer, 0.9)
by_lambda = lambda optimizer: LambdaLR(optimizer, lambda epoch: 0.9**epoch)
restarts = lambda optimizer: CosineAnnealingWarmRestarts(optimizer, 8)
for name, make in (("ExponentialLR", exponential), ("LambdaLR", by_lambda)):
    print(f"ConstantLR and {name}:", rates(lambda o: ChainedScheduler([warm(o), make(o)])))
    print(f"{name} and a plateau:", rates(make, plateau=True))
print("warm restarts:", rates(restarts))
print("warm restarts, and ConstantLR behind:", rates(lambda o: ChainedScheduler([restarts(o), warm(o)])))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
ConstantLR and ExponentialLR: 0.5 0.45 0.405 0.729 0.656 0.59 0.531
ExponentialLR and a plateau: 1 0.9 0.81 0.0729 0.0656 0.0059 0.00531
ConstantLR and LambdaLR: 1 0.9 0.81 0.729 0.656 0.59 0.531
LambdaLR and a plateau: 1 0.9 0.81 0.0729 0.656 0.059 0.531
warm restarts: 1 0.962 0.854 0.691 0.5 0.309 0.146
warm restarts, and ConstantLR behind: 0.5 0.962 0.854 1.38 0.5 0.309 0.146
SEEN
