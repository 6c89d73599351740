#!/usr/bin/env bash
# Attention weights do not sum to 1. torch 2.13.0, CPU.
# Guess: the weights that nn.MultiheadAttention returns are a softmax, to be logged or to be the target of a loss.
# Seen: in training mode they are those after the dropout: some are 0, the others larger, and a row sums to anything around
# 1. A coverage loss or an entropy of them is that of the mask. In evaluation mode they sum to 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

torch.manual_seed(0)
layer = torch.nn.MultiheadAttention(8, 1, dropout=0.3, batch_first=True)
x = torch.randn(1, 50, 8)
for mode in (True, False):
    weights = layer.train(mode)(x, x, x)[1]
    sums = weights.sum(-1)
    print(f"training {mode}: sums from {sums.min():.2f} to {sums.max():.2f}, {(weights == 0).float().mean():.1f} of the weights are 0")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
training True: sums from 0.77 to 1.27, 0.3 of the weights are 0
training False: sums from 1.00 to 1.00, 0.0 of the weights are 0
SEEN
