#!/usr/bin/env bash
# A rate of 0.000001 trains as fast as one of 10. pytorch_optimizer 4.1.0, torch 2.13.0, CPU.
# Guess: `lr` is the rate, and a schedule that lowers it makes the steps smaller; an optimizer that ignores it says so, as the
# Adafactor of transformers does.
# Seen: Adafactor and A2Grad make the same steps, whatever the rate: Adafactor's relative_step is on by default. MARS reads it
# for matrices; biases and norms have `lr_1d`, 3e-3, which no schedule touches: at a rate of 0 they go on at full speed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet pytorch_optimizer==4.1.0
cat > "$folder/tried.py" <<'CODE'
import torch
from pytorch_optimizer import load_optimizer


def moved(name, **options):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    before = [each.detach().clone() for each in model.parameters()]
    optimizer = load_optimizer(name)(model.parameters(), **options)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
    return [round((old - new).abs().max().item(), 5) for old, new in zip(before, model.parameters())]


for name, more in (("adafactor", {}), ("a2grad", {}), ("mars", {}), ("adafactor", {"relative_step": False})):
    for rate in (1e-6, 1e-2, 10.0):
        weight, bias = moved(name, lr=rate, **more)
        print(f"{name} {more or 'by default'} at {rate}: the weight moves {weight}, the bias {bias}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
adafactor by default at 1e-06: the weight moves 0.00303, the bias 0.00464
adafactor by default at 0.01: the weight moves 0.00303, the bias 0.00464
adafactor by default at 10.0: the weight moves 0.00303, the bias 0.00464
a2grad by default at 1e-06: the weight moves 0.16076, the bias 0.18545
a2grad by default at 0.01: the weight moves 0.16076, the bias 0.18545
a2grad by default at 10.0: the weight moves 0.16076, the bias 0.18545
mars by default at 1e-06: the weight moves 1e-05, the bias 0.0157
mars by default at 0.01: the weight moves 0.05002, the bias 0.01566
mars by default at 10.0: the weight moves 0.94496, the bias 0.00622
adafactor {'relative_step': False} at 1e-06: the weight moves 0.0, the bias 0.0
adafactor {'relative_step': False} at 0.01: the weight moves 0.00303, the bias 0.00464
adafactor {'relative_step': False} at 10.0: the weight moves 0.11719, the bias 1.17908
SEEN
