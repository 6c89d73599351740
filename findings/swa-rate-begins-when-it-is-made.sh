#!/usr/bin/env bash
# A rate for the end of a training rules its beginning. torch 2.13.0, CPU.
# Guess: SWALR, made before the loop as in torch's own example, changes nothing until it is stepped.
# Seen: with anneal_epochs=0, at once to the rate, the constructor sets it: a cosine that starts beside it then goes on from
# there, since it multiplies what it finds. With anneal_epochs=1 the rates are those of the cosine.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.optim.swa_utils import SWALR

for epochs in (None, 1, 0):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    schedule = CosineAnnealingLR(optimizer, 10)
    if epochs is not None:
        SWALR(optimizer, swa_lr=0.01, anneal_epochs=epochs)
    seen = []
    for _ in range(4):
        seen.append(round(optimizer.param_groups[0]["lr"], 4))
        optimizer.step()
        schedule.step()
    print("no SWALR:" if epochs is None else f"anneal_epochs={epochs}:", seen)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
no SWALR: [1.0, 0.9755, 0.9045, 0.7939]
anneal_epochs=1: [1.0, 0.9755, 0.9045, 0.7939]
anneal_epochs=0: [0.01, 0.0098, 0.009, 0.0079]
SEEN
