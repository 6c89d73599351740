#!/usr/bin/env bash
# Fake tensors show a fraction of what an LSTM on the CPU keeps for its backward pass. torch 2.13.0.
# Guess: a fake step keeps as many bytes as a real one, as it does for a GRU, so that memory can be planned.
# Seen: the workspace of the LSTM's kernel, 125 MiB here and most of all that is kept, is shown as 1 MiB.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks


def kept(kind):
    """The bytes of all that a layer keeps for its backward pass."""
    sizes = []

    def note(tensor):
        sizes.append(tensor.nbytes)
        return tensor

    layer, texts = getattr(nn, kind)(128, 256, batch_first=True), torch.ones(64, 128, 128)
    with saved_tensors_hooks(note, lambda tensor: tensor):
        layer(texts)
    return sum(sizes)


for kind in ("LSTM", "GRU", "RNN"):
    real = kept(kind)
    with FakeTensorMode():
        fake = kept(kind)
    print(kind, "equal" if real == fake else "fake is less than a fifth" if fake < real / 5 else (real, fake))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
LSTM fake is less than a fifth
GRU equal
RNN equal
SEEN
