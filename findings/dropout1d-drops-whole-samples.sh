#!/usr/bin/env bash
# Dropout of features drops samples. torch 2.13.0, CPU.
# Guess: nn.Dropout1d, on the (batch, features) that a linear layer gives, drops features, as in (batch, features, length).
# Seen: two sizes are one sample of channels and length, so each row is a channel: whole samples become 0, and the others
# are doubled. nn.Dropout2d warns of three sizes; nothing warns here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

for name in ("Dropout", "Dropout1d"):
    torch.manual_seed(0)
    rows = getattr(torch.nn, name)(0.5)(torch.ones(10_000, 16))
    empty, whole = (rows == 0).all(1).float().mean().item(), (rows == 2).all(1).float().mean().item()
    print(f"{name}: {empty:.2f} of the samples are zeros, {whole:.2f} are doubled as a whole")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
Dropout: 0.00 of the samples are zeros, 0.00 are doubled as a whole
Dropout1d: 0.50 of the samples are zeros, 0.50 are doubled as a whole
SEEN
