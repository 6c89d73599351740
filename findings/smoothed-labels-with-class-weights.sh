#!/usr/bin/env bash
# A model that knows nothing has a loss of twice the logarithm of its classes. torch 2.13.0, CPU.
# Guess: with class weights, cross_entropy is a weighted mean, so equal logits give log(3) = 1.10 for any targets and
# smoothing.
# Seen: the smoothed part is weighted by all classes and divided by the weights of the targets. A batch without the heavy
# class has a loss of several times 1.10, and a gradient towards that class; a batch of it has less.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.nn.functional import cross_entropy

weight = torch.tensor([1.0, 1.0, 10.0])
for targets in ([0, 1], [2, 2]):
    for smoothing in (0.0, 0.3):
        logits = torch.zeros(2, 3, requires_grad=True)
        loss = cross_entropy(logits, torch.tensor(targets), weight=weight, label_smoothing=smoothing)
        gradient, = torch.autograd.grad(loss, logits)
        print(f"targets {targets}, smoothing {smoothing}: loss {loss.item():.2f}, gradient", [round(g, 2) for g in gradient[0].tolist()])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
targets [0, 1], smoothing 0.0: loss 1.10, gradient [-0.33, 0.17, 0.17]
targets [0, 1], smoothing 0.3: loss 2.09, gradient [-0.08, 0.27, -0.18]
targets [2, 2], smoothing 0.0: loss 1.10, gradient [0.17, 0.17, -0.33]
targets [2, 2], smoothing 0.3: loss 0.90, gradient [0.13, 0.13, -0.26]
SEEN
