#!/usr/bin/env bash
# maximize=True does not undo the sign of a loss. pytorch_optimizer 4.1.0, torch 2.13.0, CPU.
# Guess: Adan(maximize=True) with the negative loss makes the steps of Adan with the loss, as torch's optimizers do with
# theirs.
# Seen: the gradient of the step before is kept with the other sign, so that the difference of two gradients is nearly
# their sum: from the second step on, the steps are others.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 pytorch_optimizer==4.1.0
cat > "$folder/tried.py" <<'CODE'
import torch
from pytorch_optimizer import Adan


def track(kind, maximize):
    weight = torch.nn.Parameter(torch.tensor(1.0))
    optimizer = kind([weight], lr=0.1, maximize=maximize)
    found = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = (weight - 5) ** 2
        (-loss if maximize else loss).backward()
        optimizer.step()
        found.append(round(weight.item(), 4))
    return found


for kind in (torch.optim.Adam, Adan):
    print(kind.__name__, "minimize", track(kind, False))
    print(kind.__name__, "maximize", track(kind, True))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
Adam minimize [1.1, 1.1999, 1.2997, 1.3993, 1.4987]
Adam maximize [1.1, 1.1999, 1.2997, 1.3993, 1.4987]
Adan minimize [1.1, 1.1999, 1.2998, 1.3996, 1.4994]
Adan maximize [1.1, 1.1879, 1.2723, 1.3555, 1.4383]
SEEN
