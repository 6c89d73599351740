#!/usr/bin/env bash
# Compiled, a rounding to bfloat16 rounds nothing, and a float16 does not overflow. torch 2.13.0, CPU.
# Guess: x.bfloat16().float() gives 8 bits of each number, in eager mode and compiled.
# Seen: the two casts cancel out in a compiled function. A simulated quantization trains without one, the rest of a number
# behind its upper bits is 0, so that sums in two parts lose their second one, and 100,000 passes through float16. A
# multiplication by 1 between the casts does not help.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch


def quantized(x):
    return x.bfloat16().float()


def rest(x):
    return x - x.bfloat16().float()


def through_half(x):
    return x.half().float()


def scaled(x):
    return (x.bfloat16() * 1).float()


x = torch.tensor([1.001, 3.14159, 100_000.0])
for function in (quantized, rest, through_half, scaled):
    torch._dynamo.reset()
    eager, compiled = function(x), torch.compile(function)(x)
    seen = [[round(value, 5) for value in each.tolist()] for each in (eager, compiled)]
    print(f"{function.__name__}: eager {seen[0]}, compiled {seen[1]}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
quantized: eager [1.0, 3.14062, 99840.0], compiled [1.001, 3.14159, 100000.0]
rest: eager [0.001, 0.00097, 160.0], compiled [0.0, 0.0, 0.0]
through_half: eager [1.00098, 3.14062, inf], compiled [1.001, 3.14159, 100000.0]
scaled: eager [1.0, 3.14062, 99840.0], compiled [1.001, 3.14159, 100000.0]
SEEN
