#!/usr/bin/env bash
# A mean over time differs between training and evaluation. torch 2.13.0, CPU.
# Guess: without dropout, a TransformerEncoder gives the same values in train() and in eval().
# Seen: with src_key_padding_mask, an evaluation without gradients takes a path of its own, which sets padded positions to
# zero. So a mean over all positions, a loss at padded ones, or a layer behind see zeros that training never had.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(8, 2, dropout=0.0, batch_first=True)
encoder = nn.TransformerEncoder(layer, 2)
words = torch.randn(2, 6, 8)
padding = torch.tensor([[False] * 6, [False] * 2 + [True] * 4])
trained = encoder(words, src_key_padding_mask=padding).detach()
encoder.eval()
for name, mode in (("with gradients", torch.enable_grad()), ("without", torch.no_grad())):
    with mode:
        found = encoder(words, src_key_padding_mask=padding).detach()
    print("eval()", name)
    print("  words as in training:", torch.allclose(found[~padding], trained[~padding], atol=1e-5))
    print(
        "  mean over time as in training:",
        torch.allclose(found.mean(1), trained.mean(1), atol=1e-5),
    )
    print("  padded positions are zero:", bool((found[padding] == 0).all()))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
eval() with gradients
  words as in training: True
  mean over time as in training: True
  padded positions are zero: False
eval() without
  words as in training: True
  mean over time as in training: False
  padded positions are zero: True
SEEN
