#!/usr/bin/env bash
# Hooks that only look at saved tensors switch off autograd's check of changes in place. torch 2.13.0, CPU.
# Guess: saved_tensors_hooks that return what they get, such as to count bytes, change nothing; nor does save_on_cpu on a CPU.
# Seen: without them, a backward pass through a tensor that was changed in place is an error. With them it gives the gradient of
# the changed values, without a word. activation checkpointing keeps the check.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
from contextlib import nullcontext
import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
layer, inputs = torch.nn.Linear(4, 4), torch.randn(3, 4)

def gradient(around, in_place=True, call=lambda function, value: function(value)):
    layer.zero_grad()
    hidden = (inputs * torch.ones(1, requires_grad=True))
    with around:
        added = call(lambda value: torch.tanh(layer(value)), hidden)
        if in_place:
            hidden += added
        else:
            hidden = hidden + added
    hidden.sum().backward()
    return layer.weight.grad.clone()

right, sizes = gradient(nullcontext(), in_place=False), []
for name, around, call in (
    ("no hooks", nullcontext(), None),
    ("checkpoint", nullcontext(), lambda function, value: checkpoint(function, value, use_reentrant=False)),
    ("hooks that count", saved_tensors_hooks(lambda each: sizes.append(each.nbytes) or each, lambda each: each), None),
    ("save_on_cpu", save_on_cpu(), None),
):
    try:
        found = gradient(around, **({"call": call} if call else {}))
        print(f"{name}: {'the right gradient' if torch.allclose(found, right) else 'another gradient'}")
    except RuntimeError as error:
        print(f"{name}: an error, {'in-place' if 'inplace' in str(error) else 'other'}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
no hooks: an error, in-place
checkpoint: an error, in-place
hooks that count: another gradient
save_on_cpu: another gradient
SEEN
