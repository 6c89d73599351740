#!/usr/bin/env bash
# The same data, given again, make each prediction fifty times as large. botorch 0.18.1, gpytorch 1.15.2, torch 2.13.0, CPU.
# Guess: set_train_data(x, y) of a SingleTaskGP takes what its constructor takes, so that the data it was made of change nothing, and
# new observations can be added by it in a loop.
# Seen: the constructor standardises y, and the posterior is scaled back by that; set_train_data takes y for what was standardised, so
# that a prediction of 100 becomes one of 3,688, without a word. model(x) in evaluation mode gives standardised values, and
# model.posterior(x) those of y. A new model of all data, or condition_on_observations, is right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet botorch==0.18.1 gpytorch==1.15.2
cat > "$folder/tried.py" <<'CODE'
import torch
from botorch.models import SingleTaskGP

x = torch.linspace(0, 1, 6, dtype=torch.float64)[:, None]
y = 100 + 50 * torch.sin(6 * x)
model = SingleTaskGP(x, y).eval()
print("true values:", [round(each) for each in y[:3].flatten().tolist()])
print("posterior:", [round(each) for each in model.posterior(x[:3]).mean.flatten().tolist()])
print("model(x):", [round(each, 1) for each in model(x[:3]).mean.tolist()])
model.set_train_data(x, y.flatten())
print("posterior, the same data set again:", [round(each) for each in model.posterior(x[:3]).mean.flatten().tolist()])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
true values: [100, 147, 134]
posterior: [100, 146, 134]
model(x): [0.0, 1.3, 1.0]
posterior, the same data set again: [3688, 5353, 4901]
SEEN
