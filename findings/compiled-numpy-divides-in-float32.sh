#!/usr/bin/env bash
# A compiled function of NumPy divides whole numbers in float32. torch 2.13.0, numpy 2.4.6, CPU.
# Guess: torch.compile gives what NumPy gives, in NumPy's types: float64 unless said otherwise, which `x / 2.0` and x.mean() keep.
# Seen: `x / 2` of whole numbers is float32, which has 7 digits: seconds since 1970 are rounded to minutes.
# The sign of NaN is 0. Arrays of np.random come from torch's generator and do not follow np.random.seed; single numbers do.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import numpy as np
import torch

def repeats(function):
    drawn = []
    for _ in range(2):
        np.random.seed(0)
        drawn.append(function())
    return np.array_equal(*drawn)

whole = np.array([1_700_000_001, 1_700_000_051])
for name, function in {
    "x / 2": lambda x: x / 2,
    "x / 2.0": lambda x: x / 2.0,
    "x * 0.5": lambda x: x * 0.5,
    "x.sum() / len(x)": lambda x: x.sum() / len(x),
    "x.mean()": lambda x: x.mean(),
    "np.sqrt(x)": lambda x: np.sqrt(x),
}.items():
    made, compiled = np.asarray(function(whole)), np.asarray(torch.compile(function)(whole))
    away = np.abs(made - compiled).max()
    print(f"{name}: {made.dtype}, compiled {compiled.dtype}, away by {away:.0f}")
compiled = torch.compile(lambda x: np.sign(x))(np.array([np.nan, -2.0]))
print("np.sign of NaN and -2:", np.sign(np.array([np.nan, -2.0])).tolist(), "compiled", compiled.tolist())
zeros = np.zeros(3)
for name, function in {
    "np.random.rand(3)": lambda: zeros + np.random.rand(3),
    "np.random.normal(size=3)": lambda: zeros + np.random.normal(size=3),
    "np.random.rand()": lambda: zeros + np.random.rand(),
}.items():
    compiled = torch.compile(function)
    print(f"{name} after the same np.random.seed repeats: {repeats(function)}, compiled {repeats(compiled)}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
x / 2: float64, compiled float32, away by 26
x / 2.0: float64, compiled float64, away by 0
x * 0.5: float64, compiled float64, away by 0
x.sum() / len(x): float64, compiled float32, away by 26
x.mean(): float64, compiled float64, away by 0
np.sqrt(x): float64, compiled float64, away by 0
np.sign of NaN and -2: [nan, -1.0] compiled [0.0, -1.0]
np.random.rand(3) after the same np.random.seed repeats: True, compiled False
np.random.normal(size=3) after the same np.random.seed repeats: True, compiled False
np.random.rand() after the same np.random.seed repeats: True, compiled True
SEEN
