#!/usr/bin/env bash
# AdamW8bit makes steps of thousands of rates where gradients in a block differ by a thousand. torchao 0.18.0, torch 2.13.0.
# Guess: a state in 8 bits changes a step by a few percent; no step of AdamW is much longer than its rate.
# Seen: squares of gradients have a scale for each 256 numbers. One that is a millionth of the largest becomes 0, while the mean
# of the gradient does not, so that it is divided by eps alone: single weights move by thousands of rates, and the loss looks
# sound. AdamWFp8 does the same. AdamW4bit, which has no zero for squares, does not; with eps=1e-5, steps stay short.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 setuptools
"$folder/env/bin/pip" install --quiet torchao==0.18.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torch import nn
from torchao.optim import AdamW4bit, AdamW8bit, AdamWFp8


def longest(optimizer_class, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    inputs = torch.randn(512, 64)
    inputs[:, 32:] *= 0.01  # half of the features are a hundred times smaller
    targets = inputs @ torch.randn(64, 64)
    optimizer = optimizer_class(model.parameters(), lr=1e-3, weight_decay=0.0, **options)
    steps = []
    for _ in range(100):
        before = [each.detach().clone() for each in model.parameters()]
        optimizer.zero_grad()
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        steps.append(max((each - old).abs().max().item() for each, old in zip(model.parameters(), before, strict=True)) / 1e-3)
    return max(steps)


for name, optimizer_class, options in (
    ("AdamW", torch.optim.AdamW, {}),
    ("AdamW8bit", AdamW8bit, {}),
    ("AdamW8bit(eps=1e-5)", AdamW8bit, {"eps": 1e-5}),
    ("AdamWFp8", AdamWFp8, {}),
    ("AdamW4bit", AdamW4bit, {}),
):
    step = longest(optimizer_class, **options)
    size = "thousands of" if step > 1000 else "hundreds of" if step > 100 else "tens of" if step > 10 else "less than ten"
    print(f"{name}: the longest step of a weight is {size} rates")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
AdamW: the longest step of a weight is less than ten rates
AdamW8bit: the longest step of a weight is thousands of rates
AdamW8bit(eps=1e-5): the longest step of a weight is less than ten rates
AdamWFp8: the longest step of a weight is thousands of rates
AdamW4bit: the longest step of a weight is less than ten rates
SEEN
