#!/usr/bin/env bash
# An initialisation changes nothing. torch 2.13.0, CPU.
# Guess: nn.init.zeros_(layer.weight), and a clamp of it as in WGAN, work on a layer with weight_norm or spectral_norm, or
# fail.
# Seen: `weight` is computed anew at each access, and what is written into it is thrown away without a word. The layer
# starts as it was. An assignment, `layer.weight = ...`, works.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.nn.utils import parametrizations

def made(kind):
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 3)
    return getattr(parametrizations, kind)(layer) if kind else layer

for kind in (None, "weight_norm", "spectral_norm", "orthogonal"):
    layer = made(kind).eval()
    before = layer.weight.detach().clone()
    torch.nn.init.constant_(layer.weight, 0.001)
    initialised = not torch.allclose(layer.weight, before)
    with torch.no_grad():
        layer.weight.clamp_(-0.0001, 0.0001)
    print(f"{kind}: initialised {initialised}, clamped {layer.weight.abs().max().item() < 0.001}")
layer = made("weight_norm")
layer.weight = torch.full((3, 3), 0.001)
print("assigned:", round(layer.weight[0, 0].item(), 4))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
None: initialised True, clamped True
weight_norm: initialised False, clamped False
spectral_norm: initialised False, clamped False
orthogonal: initialised False, clamped False
assigned: 0.001
SEEN
