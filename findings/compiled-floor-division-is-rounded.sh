#!/usr/bin/env bash
# A compiled model puts points into other cells, since `//` and `%` of floats are computed another way. torch 2.13.0, CPU.
# Guess: compiled, `x // 0.1` is the same up to rounding, and rounding does not matter, as the quotient is a whole number.
# Seen: eager, `//` is Python's: 0.7 // 0.1 is 6. Compiled, it is the floor of the rounded quotient: 7. Of points that are
# rounded to hundredths, 5 in 100 come into another cell of 0.1, and 11 in 100 into another one of 0.02. Compiled, `t % 6.2832`
# is off by 0.03 for times about a million, and is exact in eager mode. onnxruntime divides as the compiled model does.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

points = torch.tensor([0.5, 0.7, 0.9, 1.0, 1.4])


def cells(x, size):
    return x // size


compiled = torch.compile(cells, dynamic=False)
print("cells of", [round(each, 1) for each in points.tolist()])
print("eager:", cells(points, 0.1).tolist(), "and in Python:", [each // 0.1 for each in (0.5, 0.7, 0.9, 1.0, 1.4)])
print("compiled:", compiled(points, 0.1).tolist())
torch.manual_seed(0)
cloud = (torch.rand(100_000) * 10).round(decimals=2)
for size in (0.1, 0.02):
    part = (cells(cloud, size) != compiled(cloud, size)).float().mean().item()
    print(f"of 100,000 points in hundredths, {100 * part:.0f} in 100 are in another cell of {size}")

period = 6.283185307179586
times = torch.arange(0, 1_000_001, 1000.0)
exact = times.double() % float(torch.tensor(period))
for name, of in {"eager": lambda t: t % period, "compiled": torch.compile(lambda t: t % period)}.items():
    print(f"{name}: the phase of times up to a million is off by {(of(times) - exact).abs().max().item():.2f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
cells of [0.5, 0.7, 0.9, 1.0, 1.4]
eager: [4.0, 6.0, 8.0, 9.0, 13.0] and in Python: [4.0, 6.0, 8.0, 9.0, 13.0]
compiled: [5.0, 7.0, 9.0, 10.0, 14.0]
of 100,000 points in hundredths, 5 in 100 are in another cell of 0.1
of 100,000 points in hundredths, 11 in 100 are in another cell of 0.02
eager: the phase of times up to a million is off by 0.00
compiled: the phase of times up to a million is off by 0.03
SEEN
