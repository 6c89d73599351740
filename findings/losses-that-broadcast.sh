#!/usr/bin/env bash
# Some losses of a column and a row compare each value with each other. torch 2.13.0, CPU.
# Guess: a prediction of [batch, 1] and a target of [batch] is an error, or a warning as of mse_loss.
# Seen: poisson_nll_loss, gaussian_nll_loss and hinge_embedding_loss take the mean over all pairs, without a word. A
# model that can fit each target learns their mean instead.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import warnings

import torch
from torch.nn import functional

warnings.simplefilter("always")
torch.manual_seed(0)
target = torch.tensor([1.0, 2.0, 3.0, 10.0])
losses = {
    "mse_loss": functional.mse_loss,
    "poisson_nll_loss": functional.poisson_nll_loss,
    "gaussian_nll_loss": lambda rate, target: functional.gaussian_nll_loss(
        rate.exp(), target, torch.ones(4, 1)
    ),
}
for name, loss in losses.items():
    rates = torch.zeros(4, 1, requires_grad=True)
    optimizer = torch.optim.Adam([rates], lr=0.05)
    with warnings.catch_warnings(record=True) as told:
        for _ in range(1000):
            optimizer.zero_grad()
            loss(rates, target).backward()
            optimizer.step()
    learnt = rates if name == "mse_loss" else rates.exp()
    print(
        name,
        "learns",
        [round(each, 1) for each in learnt.flatten().tolist()],
        "warnings:",
        bool(told),
    )
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
mse_loss learns [4.0, 4.0, 4.0, 4.0] warnings: True
poisson_nll_loss learns [4.0, 4.0, 4.0, 4.0] warnings: False
gaussian_nll_loss learns [4.0, 4.0, 4.0, 4.0] warnings: False
SEEN
