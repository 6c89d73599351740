#!/usr/bin/env bash
# The gradient of the CTC loss is that of another function. torch 2.13.0, CPU.
# Guess: autograd gives the derivative of ctc_loss, so a prior or a temperature may stand between log_softmax and the loss.
# Seen: the kernel takes for granted that log_softmax is what comes before. Behind a temperature, the gradient is half as
# far off as it is long, beside that of finite differences. Directly behind log_softmax, or a second one, both agree.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.nn.functional import ctc_loss

torch.manual_seed(0)
logits = torch.randn(6, 1, 4, dtype=torch.float64, requires_grad=True)

def loss(logits, change):
    return ctc_loss(change(logits.log_softmax(-1)), torch.tensor([[1, 2]]), (6,), (2,))

for name, change in (
    ("log_softmax", lambda x: x),
    ("log_softmax * 0.5", lambda x: x * 0.5),
    ("log_softmax * 0.5, and again", lambda x: (x * 0.5).log_softmax(-1)),
):
    gradient, = torch.autograd.grad(loss(logits, change), logits)
    numeric = torch.zeros_like(gradient)
    with torch.no_grad():
        for place in range(logits.numel()):
            step = torch.zeros(logits.numel(), dtype=torch.float64)
            step[place] = 1e-6
            step = step.view_as(logits)
            numeric.view(-1)[place] = (loss(logits + step, change) - loss(logits - step, change)) / 2e-6
    off = (gradient - numeric).norm() / numeric.norm()
    print(f"{name}: off by {off:.0%}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
log_softmax: off by 0%
log_softmax * 0.5: off by 49%
log_softmax * 0.5, and again: off by 0%
SEEN
