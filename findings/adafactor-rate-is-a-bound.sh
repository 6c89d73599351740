#!/usr/bin/env bash
# The rate of Adafactor falls although no schedule lowers it. torch 2.13.0, CPU.
# Guess: with lr=0.05 and without a schedule, each step is as long as the first one, as of Adam.
# Seen: it takes the smaller of lr and 1 / sqrt(step). From step 400 on, 0.05 is not used any more, while the parameter
# group, and so each schedule and log, goes on showing it. A rate of 0.01 is left after 10,000 steps.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

for kind in (torch.optim.Adam, torch.optim.Adafactor):
    weight = torch.nn.Parameter(torch.ones(4, 4))
    optimizer = kind([weight], lr=0.05, weight_decay=0.0)
    for step in range(1, 10_001):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        if step in (1, 400, 1600, 10_000):
            moved = float(1 - weight[0, 0].detach())
            print(
                kind.__name__,
                "step",
                step,
                "moves",
                f"{moved:.4f}, shows",
                optimizer.param_groups[0]["lr"],
            )
        with torch.no_grad():
            weight.fill_(1.0)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
Adam step 1 moves 0.0500, shows 0.05
Adam step 400 moves 0.0500, shows 0.05
Adam step 1600 moves 0.0500, shows 0.05
Adam step 10000 moves 0.0500, shows 0.05
Adafactor step 1 moves 0.0500, shows 0.05
Adafactor step 400 moves 0.0500, shows 0.05
Adafactor step 1600 moves 0.0250, shows 0.05
Adafactor step 10000 moves 0.0100, shows 0.05
SEEN
