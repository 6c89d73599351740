#!/usr/bin/env bash
# A hook that is added to a compiled model is never called. torch 2.13.0, CPU.
# Guess: torch.compile checks what a model looks like, and compiles again, as it does for another dropout rate.
# Seen: hooks are not among what it checks. One that is registered after the first call is passed over, and one that is
# removed stops; a dropout rate, a list or a replaced layer is seen. The compiled model then computes something else.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch import nn

rows = torch.ones(1, 2)


def zero(module, inputs, output):
    return output * 0


def compiled(*layers):
    model = nn.Sequential(*layers)
    fast = torch.compile(model, backend="eager")
    fast(rows)
    return model, fast


model, fast = compiled(nn.Linear(2, 2), nn.Tanh())
hook = model[0].register_forward_hook(zero)
print("a hook: model", bool((model(rows) == 0).all()), "compiled", bool((fast(rows) == 0).all()))

model, fast = compiled(nn.Dropout(0.0))
model[0].p = 1.0
print("a rate: model", bool((model(rows) == 0).all()), "compiled", bool((fast(rows) == 0).all()))

model, fast = compiled(nn.Linear(2, 2))
model[0] = nn.Threshold(9.0, 0.0)
print("a layer: model", bool((model(rows) == 0).all()), "compiled", bool((fast(rows) == 0).all()))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
a hook: model True compiled False
a rate: model True compiled True
a layer: model True compiled True
SEEN
