#!/usr/bin/env bash
# Equal weights, another output: the file decides. torch 2.13.0, safetensors 0.8.0, a CPU with AVX512.
# Guess: tensors that `torch.equal` calls equal give equal products.
# Seen: `load_file` gives tensors where they lie in the file, so what a file holds besides moves their addresses;
# a product of matrices rounds in another way where an address is no multiple of 16. One more number in the file,
# and a model that takes its weights with `assign=True` computes other bits. A copy of them is as before.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 safetensors==0.8.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import os
import tempfile
import torch
from safetensors.torch import load_file, save_file

torch.set_num_threads(1)
torch.manual_seed(0)
weight, batch = torch.randn(64, 128), torch.randn(1, 128)
path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
for more in ({}, {"epoch": torch.zeros(1)}):
    save_file({"weight": weight, **more}, path)
    model = torch.nn.Linear(128, 64, bias=False)
    model.load_state_dict({"weight": load_file(path)["weight"]}, assign=True)
    print("in the file", ["weight", *more], "address modulo 16:", model.weight.data_ptr() % 16)
    print("  same weights", torch.equal(model.weight, weight), end=", ")
    same = torch.nn.functional.linear(batch, weight)
    print("same output", torch.equal(model(batch), same), end=", ")
    print("of a copy", torch.equal(torch.nn.functional.linear(batch, model.weight.clone()), same))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
in the file ['weight'] address modulo 16: 0
  same weights True, same output True, of a copy True
in the file ['weight', 'epoch'] address modulo 16: 12
  same weights True, same output False, of a copy True
SEEN
