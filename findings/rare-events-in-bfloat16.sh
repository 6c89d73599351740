#!/usr/bin/env bash
# What should happen to one value in ten thousand happens to twenty. torch 2.13.0, CPU.
# Guess: torch.rand_like(x) < p is true for a share of p, whatever the type of x.
# Seen: random numbers of bfloat16 are multiples of 1/256, and 0 is one of 512; of float16, one of 4096. It is below each p,
# so a mask for noise, stochastic depth or a rare event hits too many. Random numbers of float32 have the right share.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

torch.manual_seed(0)
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    x = torch.empty(4_000_000, dtype=dtype)
    for p in (1e-4, 1e-3, 1e-1):
        share = (torch.rand_like(x) < p).float().mean().item()
        print(f"{dtype}, {p:g}: {share / p:.1f} times as many")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
torch.float32, 0.0001: 1.0 times as many
torch.float32, 0.001: 1.0 times as many
torch.float32, 0.1: 1.0 times as many
torch.float16, 0.0001: 3.3 times as many
torch.float16, 0.001: 1.3 times as many
torch.float16, 0.1: 1.0 times as many
torch.bfloat16, 0.0001: 20.4 times as many
torch.bfloat16, 0.001: 2.9 times as many
torch.bfloat16, 0.1: 1.0 times as many
SEEN
