#!/usr/bin/env bash
# A copy of a model forgets what stands on its parameters. torch 2.13.0, CPU.
# Guess: copy.deepcopy of a layer copies the attributes and hooks of its parameters as those of its buffers and modules.
# Seen: a parameter is copied without either; so `no_decay = True`, or a hook that masks a gradient, holds for no layer of a
# TransformerEncoder, which copies the one it is given. fully_shard drops both as well. A buffer keeps its mark.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import copy

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

def masked(layer):
    layer.weight.no_decay = True
    layer.weight.register_hook(lambda gradient: gradient * 0)
    layer.register_buffer("scale", torch.ones(1))
    layer.scale.no_decay = True
    return layer

def look(name, layer):
    layer(torch.ones(1, 2)).sum().backward()
    marks = [getattr(tensor, "no_decay", False) for tensor in (layer.weight, layer.scale)]
    print(f"{name}: marks of weight and buffer {marks}, the gradient is masked: {not layer.weight.grad.abs().max().item()}")

look("the layer", masked(torch.nn.Linear(2, 2)))
look("its copy", copy.deepcopy(masked(torch.nn.Linear(2, 2))))
layer = torch.nn.TransformerEncoderLayer(2, 1, 2)
layer.linear1 = masked(layer.linear1)
look("in an encoder", torch.nn.TransformerEncoder(layer, 1).layers[0].linear1)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
layer = masked(torch.nn.Linear(2, 2))
fully_shard(layer)
print("sharded: mark of the weight", hasattr(layer.weight, "no_decay"))
layer(torch.ones(1, 2)).sum().backward()
print("sharded: the gradient is masked:", not layer.weight.grad.full_tensor().abs().max().item())
dist.destroy_process_group()
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
the layer: marks of weight and buffer [True, True], the gradient is masked: True
its copy: marks of weight and buffer [False, True], the gradient is masked: False
in an encoder: marks of weight and buffer [False, True], the gradient is masked: False
sharded: mark of the weight False
sharded: the gradient is masked: False
SEEN
