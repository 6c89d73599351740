#!/usr/bin/env bash
# A layer whose weight norm is removed is not trained any more. torch 2.13.0, CPU.
# Guess: remove_parametrizations leaves the layer as it is, and the optimizer trains its weight from then on.
# Seen: weight_norm has two parameters, and its removal makes a third one, which no optimizer has. The weight stands still
# without a word. spectral_norm and orthogonal have one parameter, which becomes the weight: training goes on.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import remove_parametrizations

for name in ("weight_norm", "spectral_norm", "orthogonal"):
    torch.manual_seed(0)
    layer = getattr(parametrizations, name)(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    moved = []
    for step in range(4):
        if step == 2:
            remove_parametrizations(layer, "weight")
        before = layer.weight.clone()
        optimizer.zero_grad()
        (layer(torch.ones(1, 4)) - 1).square().sum().backward()
        optimizer.step()
        moved.append(not torch.allclose(before, layer.weight))
    print(f"{name}: the weight moves in steps 0 to 3 (removed before step 2) {moved}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
weight_norm: the weight moves in steps 0 to 3 (removed before step 2) [True, True, False, False]
spectral_norm: the weight moves in steps 0 to 3 (removed before step 2) [True, True, True, True]
orthogonal: the weight moves in steps 0 to 3 (removed before step 2) [True, True, True, True]
SEEN
