#!/usr/bin/env bash
# After the same seed, 15 and 16 normal numbers have none in common, and one more row changes rows before it. torch 2.13.0, CPU.
# Guess: after a seed, randn(17) begins with the numbers of randn(16), as rand, dropout masks and exponential_() do.
# Seen: below 16 numbers are drawn one by one, and from there on in blocks of 16, the last of which is drawn once more from the
# end. So a batch with one more sample, or a model with one more class, changes up to 15 of the numbers before it; other types
# change others. A tensor that does not lie in one piece is always drawn one by one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch


def drawn(draw, count):
    torch.manual_seed(0)
    return draw(count)


for name, draw in {
    "rand": torch.rand,
    "exponential_": lambda count: torch.empty(count).exponential_(),
    "randn": torch.randn,
    "randn in bfloat16": lambda count: torch.randn(count, dtype=torch.bfloat16),
    "randn of 3 columns": lambda count: torch.randn(count, 3),
    "normal_ of a column": lambda count: torch.empty(count, 2)[:, 0].normal_(),
}.items():
    shared = {}
    for short, long in ((10, 15), (15, 16), (16, 17), (16, 32), (100, 101)):
        less, more = drawn(draw, short), drawn(draw, long)[:short]
        shared[f"{short} of {long}"] = int((less == more).reshape(short, -1).all(1).sum())
    print(f"{name}: equal rows {shared}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
rand: equal rows {'10 of 15': 10, '15 of 16': 15, '16 of 17': 16, '16 of 32': 16, '100 of 101': 100}
exponential_: equal rows {'10 of 15': 10, '15 of 16': 15, '16 of 17': 16, '16 of 32': 16, '100 of 101': 100}
randn: equal rows {'10 of 15': 10, '15 of 16': 0, '16 of 17': 1, '16 of 32': 16, '100 of 101': 98}
randn in bfloat16: equal rows {'10 of 15': 10, '15 of 16': 0, '16 of 17': 1, '16 of 32': 16, '100 of 101': 84}
randn of 3 columns: equal rows {'10 of 15': 4, '15 of 16': 9, '16 of 17': 11, '16 of 32': 16, '100 of 101': 96}
normal_ of a column: equal rows {'10 of 15': 10, '15 of 16': 15, '16 of 17': 16, '16 of 32': 16, '100 of 101': 100}
SEEN
