#!/usr/bin/env bash
# One seed, two memory formats, two models. torch 2.13.0, CPU.
# Guess: random numbers depend on seed, shape and dtype.
# Seen: tensors are filled in the order of memory, so `channels_last` draws other weights and another dropout
# mask from the same seed; and `randn` takes another path from 16 numbers on, so the first 15 of 16 are not
# those of 15.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cat > "$folder/tried.py" <<'CODE'
import torch

def filled(fill, tensor):
    torch.manual_seed(0)
    return fill(tensor)

plain, last = torch.ones(4, 3, 2, 2), torch.ones(4, 3, 2, 2).to(memory_format=torch.channels_last)
init, dropout = torch.nn.init.normal_, torch.nn.functional.dropout
print("dropout, same mask", torch.equal(filled(dropout, plain), filled(dropout, last)))
print("init, same weights", torch.equal(filled(init, plain), filled(init, last)))
print("randn, 15 of 15 and 15 of 16", torch.equal(filled(torch.randn, 15), filled(torch.randn, 16)[:15]))
print("rand, 15 of 15 and 15 of 16", torch.equal(filled(torch.rand, 15), filled(torch.rand, 16)[:15]))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
dropout, same mask False
init, same weights False
randn, 15 of 15 and 15 of 16 False
rand, 15 of 15 and 15 of 16 True
SEEN
