#!/usr/bin/env bash
# The first five steps of Ranger go uphill. pytorch_optimizer 4.1.0, torch 2.13.0, CPU.
# Guess: Ranger is RAdam with slow weights: in the first steps, where RAdam does not divide by the variance yet, it stands still, as
# RAdam of this library does, or makes the steps of SGD, as RAdam of torch does.
# Seen: it makes the steps of SGD with the wrong sign: each of the first five raises the loss, the larger the rate the more, and the
# slow weights keep half of it. What was pretrained gets worse first. With degenerated_to_sgd=True the steps go downhill.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet pytorch_optimizer==4.1.0
cat > "$folder/tried.py" <<'CODE'
import pytorch_optimizer
import torch

for name, make in (
    ("torch.optim.RAdam", torch.optim.RAdam),
    ("RAdam", pytorch_optimizer.RAdam),
    ("Ranger", pytorch_optimizer.Ranger),
    ("Ranger(degenerated_to_sgd=True)", lambda weights, lr: pytorch_optimizer.Ranger(weights, lr=lr, degenerated_to_sgd=True)),
):
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = make([weight], lr=0.01)
    losses = []
    for _ in range(41):
        optimizer.zero_grad()
        loss = weight.square().mean()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 3))
    print(f"{name}: {losses[:6]}, and after 40 steps {losses[40]}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
torch.optim.RAdam: [1.0, 0.99, 0.98, 0.97, 0.961, 0.951], and after 40 steps 0.892
RAdam: [1.0, 1.0, 1.0, 1.0, 1.0, 1.0], and after 40 steps 0.939
Ranger: [1.0, 1.01, 1.02, 1.03, 1.041, 1.051], and after 40 steps 0.989
Ranger(degenerated_to_sgd=True): [1.0, 0.99, 0.98, 0.97, 0.961, 0.951], and after 40 steps 0.94
SEEN
