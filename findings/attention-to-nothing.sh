#!/usr/bin/env bash
# A sample of padding alone is NaN or 0, depending on what is returned. torch 2.13.0, CPU.
# Guess: nn.MultiheadAttention gives the same values with need_weights=True and False, up to rounding.
# Seen: where key_padding_mask hides all keys, it gives NaN with weights, which is the default, and the bias of its last
# layer without. nn.TransformerEncoderLayer takes the second way. One empty text in a batch makes the loss of the first NaN.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

torch.manual_seed(0)
layer = torch.nn.MultiheadAttention(4, 1, batch_first=True)
x, padding = torch.randn(2, 3, 4), torch.tensor([[False] * 3, [True] * 3])
for need in (True, False):
    for mode in (True, False):
        out = layer.train(mode)(x, x, x, key_padding_mask=padding, need_weights=need)[0]
        print(f"need_weights={need}, training {mode}: NaN in each sample {out.isnan().any((1, 2)).tolist()}")
print("the bias:", torch.equal(out[1], layer.out_proj.bias.expand(3, 4)))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
need_weights=True, training True: NaN in each sample [False, True]
need_weights=True, training False: NaN in each sample [False, True]
need_weights=False, training True: NaN in each sample [False, False]
need_weights=False, training False: NaN in each sample [False, False]
the bias: True
SEEN
