#!/usr/bin/env bash
# A circular convolution has the gradients of one that is padded with zeros. opacus 1.6.0, torch 2.13.0, CPU.
# Guess: the gradients of single samples are those that each sample gives alone, as for other layers.
# Seen: for each `padding_mode` but "zeros", the model computes with it, and the gradients of the weight are taken as
# if the border were zeros: the training follows another loss. `force_functorch=True` takes the right ones.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet opacus==1.6.0
cat > "$folder/tried.py" <<'CODE'
import copy
import torch
from opacus import GradSampleModule
from torch import nn

torch.manual_seed(0)
signals, images = torch.randn(4, 2, 9), torch.randn(4, 2, 6, 6)
layers = {
    "Conv1d": (nn.Conv1d, signals, ("zeros", "circular", "reflect", "replicate")),
    "Conv2d": (nn.Conv2d, images, ("zeros", "circular", "reflect", "replicate")),
}

def alone(layer, sample):
    layer = copy.deepcopy(layer)
    layer(sample[None]).square().mean().backward()
    return layer.weight.grad

for name, (kind, samples, modes) in layers.items():
    for mode in modes:
        layer, found = kind(2, 3, 3, padding=1, padding_mode=mode), []
        exact = torch.stack([alone(layer, sample) for sample in samples])
        for options in ({}, {"force_functorch": True}):
            private = GradSampleModule(copy.deepcopy(layer), **options)
            private(samples).square().flatten(1).mean(1).mean().backward()
            found.append(torch.allclose(next(private.parameters()).grad_sample, exact, atol=1e-5))
        print(f"{name}, {mode}: {'right' if found[0] else 'wrong'}, by functorch {'right' if found[1] else 'wrong'}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
Conv1d, zeros: right, by functorch right
Conv1d, circular: wrong, by functorch right
Conv1d, reflect: wrong, by functorch right
Conv1d, replicate: wrong, by functorch right
Conv2d, zeros: right, by functorch right
Conv2d, circular: wrong, by functorch right
Conv2d, reflect: wrong, by functorch right
Conv2d, replicate: wrong, by functorch right
SEEN
