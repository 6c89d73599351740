#!/usr/bin/env bash
# torch.manual_seed does not fix the noise of a stochastic differential equation; numpy.random.seed does. torchsde 0.2.6.
# Guess: sdeint draws its Brownian motion by torch, so that torch.manual_seed fixes it, as it fixes all else in the model.
# Seen: without `bm=`, the seed of the motion is a number that NumPy's global generator draws, and torch's does not count.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
"$folder/env/bin/pip" install --quiet torchsde==0.2.6
cat > "$folder/tried.py" <<'CODE'
import numpy
import torch
import torchsde


class Walk(torch.nn.Module):
    noise_type, sde_type = "diagonal", "ito"

    def f(self, t, y):
        return -y

    def g(self, t, y):
        return torch.ones_like(y)


def end():
    return torchsde.sdeint(Walk(), torch.ones(1, 1), torch.tensor([0.0, 1.0]), dt=0.1)[-1]


for name, seed in {"torch": torch.manual_seed, "numpy": numpy.random.seed}.items():
    ends = []
    for _ in range(2):
        seed(0)
        ends.append(end())
    print(f"after the same seed of {name}, the same end: {torch.equal(*ends)}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
after the same seed of torch, the same end: False
after the same seed of numpy, the same end: True
SEEN
