#!/usr/bin/env bash
# A distribution over a few of the classes draws equal parts of all. torch 2.13.0, numpy 2.4.6.
# Guess: the smaller the concentration, the more a draw of Dirichlet is one class alone, and one of Beta is 0 or 1.
# Seen: so it is down to 0.01. Below, the gamma draws that are divided by their sum are smaller than any double; they are taken for one
# smallest number, and become equal parts: an eighth of the draws of three classes at 0.001, most at 0.0001, in float64 too, and a
# quarter of those of Beta(0.001, 0.001) are near a half. NumPy draws them right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import numpy
import torch

generator = numpy.random.default_rng(0)
for concentration in (0.1, 0.01, 0.001, 0.0001):
    torch.manual_seed(0)
    parts = torch.full((3,), concentration, dtype=torch.float64)
    drawn = torch.distributions.Dirichlet(parts).sample((20000,)).max(1).values
    right = torch.from_numpy(generator.dirichlet(parts.numpy(), 20000)).max(1).values
    beta = torch.distributions.Beta(*parts[:2].tolist()).sample((20000,))
    print(f"{concentration}: the largest part is {drawn.mean():.2f}, of NumPy's draws {right.mean():.2f};", end=" ")
    print(f"no part is a half in {(drawn < 0.5).double().mean():.2f} and {(right < 0.5).double().mean():.2f};", end=" ")
    print(f"Beta is within 0.1 of a half in {((beta - 0.5).abs() < 0.1).double().mean():.2f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
0.1: the largest part is 0.89, of NumPy's draws 0.89; no part is a half in 0.01 and 0.01; Beta is within 0.1 of a half in 0.04
0.01: the largest part is 0.99, of NumPy's draws 0.99; no part is a half in 0.00 and 0.00; Beta is within 0.1 of a half in 0.00
0.001: the largest part is 0.92, of NumPy's draws 1.00; no part is a half in 0.12 and 0.00; Beta is within 0.1 of a half in 0.24
0.0001: the largest part is 0.46, of NumPy's draws 1.00; no part is a half in 0.81 and 0.00; Beta is within 0.1 of a half in 0.87
SEEN
