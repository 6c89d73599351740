#!/usr/bin/env bash
# Persistent workers change the order of the second epoch. torch 2.13.0.
# Guess: `persistent_workers=True` keeps the workers alive, and a seeded run sees the same samples either way.
# Seen: the first epoch is the same; from the second on the order is another one, since an iterator that is
# reset draws its base seed and its order in another sequence than one that is made. A run that turns the
# option on is another run.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.utils.data import DataLoader

def orders(workers, persistent):
    torch.manual_seed(0)
    loader = DataLoader(range(8), 8, shuffle=True, num_workers=workers, persistent_workers=persistent)
    return [[batch.tolist() for batch in loader] for _ in range(3)]

none, two, kept = orders(0, False), orders(2, False), orders(2, True)
print("two workers as none", two == none)
print("persistent, epoch by epoch", [a == b for a, b in zip(two, kept)])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
two workers as none True
persistent, epoch by epoch [True, False, False]
SEEN
