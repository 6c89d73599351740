#!/usr/bin/env bash
# A forward pass in evaluation mode changes the weights of an embedding with max_norm. torch 2.13.0.
# Guess: `eval()` and `no_grad()` together leave weights as they are.
# Seen: the rows that are looked up are scaled in place, so validation changes what is trained.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cat > "$folder/tried.py" <<'CODE'
import torch

table = torch.nn.Embedding(3, 4, max_norm=1.0).eval()
with torch.no_grad():
    table.weight.fill_(2.0)
    table(torch.tensor([0]))
print("norms of rows", [round(norm, 2) for norm in table.weight.norm(dim=1).tolist()])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
norms of rows [1.0, 4.0, 4.0]
SEEN
