#!/usr/bin/env bash
# The first five steps of RAdam are as long as the gradient. torch 2.13.0, CPU.
# Guess: a step of RAdam does not depend on the scale of the loss, as of Adam, and begins short: that is its warm-up.
# Seen: until the variance is known, it steps by rate times mean gradient, undivided. A sum in place of a mean over 1,000
# makes these steps 1,000 times longer; from the sixth on it makes no difference.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

for name in ("Adam", "RAdam"):
    for scale in (1, 1000):
        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = getattr(torch.optim, name)([weight], lr=0.1)
        seen = []
        for _ in range(7):
            before = weight.item()
            weight.grad = torch.full((1,), float(scale))
            optimizer.step()
            seen.append(f"{before - weight.item():.3g}")
        print(f"{name}, gradients of {scale}:", " ".join(seen))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
Adam, gradients of 1: 0.1 0.1 0.1 0.1 0.1 0.1 0.1
Adam, gradients of 1000: 0.1 0.1 0.1 0.1 0.1 0.1 0.1
RAdam, gradients of 1: 0.1 0.1 0.1 0.1 0.1 0.00258 0.00327
RAdam, gradients of 1000: 100 100 100 100 100 0.00259 0.00327
SEEN
