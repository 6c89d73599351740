#!/usr/bin/env bash
# Who looks at a weight moves it. torch 2.13.0, CPU.
# Guess: reading `layer.weight`, for a log line or a histogram, changes nothing.
# Seen: a spectrally normalised layer in training mode makes a step of its power iteration at each reading: its
# vectors move, and the next outputs are others. A run that logs this weight is another run.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.nn.utils.parametrizations import spectral_norm

for mode in ("train", "eval"):
    torch.manual_seed(0)
    layer = getattr(spectral_norm(torch.nn.Linear(64, 64)), mode)()
    inner, batch = layer.parametrizations.weight[0], torch.ones(1, 64)
    vector = inner._u.clone()
    layer(batch)  # which reads the weight once
    after_one = inner._u.clone()
    layer.weight.norm()
    print(mode, "forward moves the vectors:", not torch.equal(vector, after_one), end=", ")
    print("reading too:", not torch.equal(after_one, inner._u))

CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
train forward moves the vectors: True, reading too: True
eval forward moves the vectors: False, reading too: False
SEEN
