#!/usr/bin/env bash
# A Runge-Kutta solution of y' = -y grows from 1 to 5, and Euler's falls to -3, unless one asks for it at more times.
# torchdiffeq 0.2.5, torch 2.13.0.
# Guess: odeint with method="rk4" takes small steps of its own, and the times are those at which one wants to see the answer.
# Seen: a method of fixed steps takes one step from each time to the next: of two times, a single one over all the interval.
# The model that is learnt is another one for each set of times. `options={"step_size": ...}` makes the steps.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet torchdiffeq==0.2.5
cat > "$folder/tried.py" <<'CODE'
import math

import torch
from torchdiffeq import odeint


def decay(t, y):
    return -y


for method in ("dopri5", "rk4", "midpoint", "euler"):
    ends = {}
    for name, times, options in (
        ("two times", torch.tensor([0.0, 4.0]), None),
        ("five times", torch.linspace(0, 4, 5), None),
        ("two times, step_size=0.1", torch.tensor([0.0, 4.0]), {"step_size": 0.1}),
    ):
        if method != "dopri5" or options is None:
            ends[name] = odeint(decay, torch.ones(1), times, method=method, options=options)[-1].item()
    print(f"{method}:", ", ".join(f"{end:.2f} with {name}" for name, end in ends.items()))
print(f"exact: {math.exp(-4):.2f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
dopri5: 0.02 with two times, 0.02 with five times
rk4: 5.00 with two times, 0.02 with five times, 0.02 with two times, step_size=0.1
midpoint: 5.00 with two times, 0.06 with five times, 0.02 with two times, step_size=0.1
euler: -3.00 with two times, 0.00 with five times, 0.01 with two times, step_size=0.1
exact: 0.02
SEEN
