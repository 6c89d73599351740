#!/usr/bin/env bash
# Steps of RMSprop(centered=True) are hundreds of times its rate where gradients are steady. torch 2.13.0, CPU.
# Guess: a step is about as long as the rate, as in RMSprop and Adam; `centered=True` makes the same a little steadier.
# Seen: the step is divided by the deviation of the gradient from its mean. A gradient that stays has none: what is left are
# rounding errors, and the parameter is thrown far away. So is one whose gradient changes slowly, such as the bias of a score.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cat > "$folder/tried.py" <<'CODE'
import torch

for gradient in (1.0, 0.1, 0.001):
    moved = []
    for centered in (False, True):
        bias = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.RMSprop([bias], lr=0.001, centered=centered)
        for _ in range(5000):
            bias.grad = torch.full_like(bias, gradient)
            optimizer.step()
        moved.append(abs(bias.item()) / 0.001 / 5000)
    print(f"a gradient of {gradient}: a mean step of RMSprop is {moved[0]:.1f} of its rate, of the centered one over 100: {moved[1] > 100}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
a gradient of 1.0: a mean step of RMSprop is 1.0 of its rate, of the centered one over 100: True
a gradient of 0.1: a mean step of RMSprop is 1.0 of its rate, of the centered one over 100: True
a gradient of 0.001: a mean step of RMSprop is 1.0 of its rate, of the centered one over 100: True
SEEN
