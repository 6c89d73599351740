#!/usr/bin/env bash
# Seeds that differ above the 32nd bit are one seed. torch 2.13.0, CPU.
# Guess: manual_seed takes 64 bits, as its documentation says, so `seed + (rank << 32)` gives each rank its own numbers.
# Seen: the generator of the CPU starts from the lower 32 bits. All such ranks draw the same weights, dropout and
# augmentation, while initial_seed() shows the whole number; Python's and NumPy's generators take all of it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import random

import numpy
import torch

def drawn(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    return torch.rand(4).tolist(), random.random(), numpy.random.default_rng(seed).random()

seen = [drawn(7 + (rank << 32)) for rank in range(4)]
print("initial_seed() of the last one:", torch.initial_seed())
for name, values in zip(("torch", "Python", "NumPy"), zip(*seen)):
    print(f"{name}: {len({str(value) for value in values})} different draws of 4 seeds")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
initial_seed() of the last one: 12884901895
torch: 1 different draws of 4 seeds
Python: 4 different draws of 4 seeds
NumPy: 4 different draws of 4 seeds
SEEN
