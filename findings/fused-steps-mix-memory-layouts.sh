#!/usr/bin/env bash
# A fused step on a CPU pairs each weight with the gradient and moments of another one. torch 2.13.0, CPU.
# Guess: `fused=True` makes the steps of the other implementations, or refuses tensors that lie otherwise in memory.
# Seen: the values are taken in the order in which they lie in memory. If a model becomes channels_last after its first step, or
# loads the moments of one that was not, or is given gradients by autograd.grad from channels_last images, each weight is stepped
# by the numbers of other weights, without a word. In a plain loop, backward() gives gradients the layout of the weights.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import copy
import torch
from torch import nn

images = torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(1))

def begin(memory_format=torch.contiguous_format, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(288, 2)).to(memory_format=memory_format)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01, **options)

def train(case, **options):
    model, optimizer = begin(**options)
    for step in range(6):
        if step == 3 and case == "channels_last after three steps":
            model.to(memory_format=torch.channels_last)
        if step == 3 and case == "a channels_last model loads the states":
            saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            model, optimizer = begin(torch.channels_last, **options)
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        layout = torch.channels_last if "autograd.grad" in case else torch.contiguous_format
        loss = model(images.to(memory_format=layout)).square().mean()
        if "autograd.grad" in case:
            parameters = list(model.parameters())
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
                parameter.grad = gradient
        else:
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
    return model[0].weight.detach()

for case in (
    "a plain loop",
    "channels_last after three steps",
    "a channels_last model loads the states",
    "autograd.grad from channels_last images",
):
    right = train(case, foreach=False)
    for options in ({"foreach": True}, {"fused": True}):
        away = (train(case, **options) - right).abs().max().item()
        print(f"{case}, {next(iter(options))}: {'the same weights' if away < 1e-5 else 'other weights'}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
a plain loop, foreach: the same weights
a plain loop, fused: the same weights
channels_last after three steps, foreach: the same weights
channels_last after three steps, fused: other weights
a channels_last model loads the states, foreach: the same weights
a channels_last model loads the states, fused: other weights
autograd.grad from channels_last images, foreach: the same weights
autograd.grad from channels_last images, fused: other weights
SEEN
