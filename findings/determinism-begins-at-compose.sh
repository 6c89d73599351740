#!/usr/bin/env bash
# After set_determinism(0), a random transform is as random as before. monai 1.6.1, torch 2.13.0.
# Guess: set_determinism seeds whatever is random in monai, in torch and in NumPy, so that a script repeats.
# Seen: a transform that stands alone draws from a state that the operating system has seeded, and no seed reaches it but its own
# set_random_state. A Compose takes the seed when it is made: one that is there already is as random as before, too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet monai==1.6.1
cat > "$folder/tried.py" <<'CODE'
import torch
from monai.transforms import Compose, RandGaussianNoise
from monai.utils import set_determinism

before = Compose([RandGaussianNoise(prob=1.0)])
for name, make in {
    "a transform": lambda: RandGaussianNoise(prob=1.0),
    "a Compose": lambda: Compose([RandGaussianNoise(prob=1.0)]),
    "a Compose from before": lambda: before,
}.items():
    seen = []
    for _ in range(2):
        set_determinism(0)
        seen.append(torch.as_tensor(make()(torch.zeros(1, 4))))
    print(f"{name} repeats: {torch.equal(*seen)}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
a transform repeats: False
a Compose repeats: True
a Compose from before repeats: False
SEEN
