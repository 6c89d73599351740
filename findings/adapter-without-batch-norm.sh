#!/usr/bin/env bash
# A saved adapter of a network with BatchNorm gives other predictions. peft 0.21.2, torch 2.13.0, CPU.
# Guess: the base model is frozen, so base and adapter together are the trained model.
# Seen: training moves the running statistics of the base model, and save_pretrained keeps none of them. The adapter on
# a fresh base predicts something else, unless the layer is named in modules_to_save=.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 peft==0.21.2 transformers==5.23.0
cat > "$folder/tried.py" <<'CODE'
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn


def base():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 1))


for kept in ([], ["1"]):
    config = LoraConfig(target_modules=["0"], modules_to_save=["3", *kept])
    model = get_peft_model(base(), config)
    optimizer = torch.optim.SGD(
        [each for each in model.parameters() if each.requires_grad], lr=0.01
    )
    images = 5 + 3 * torch.randn(64, 1, 8, 8)
    for batch in images.split(8):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    model.save_pretrained(sys.argv[1])
    loaded = PeftModel.from_pretrained(base(), sys.argv[1])
    with torch.no_grad():
        same = torch.allclose(model.eval()(images), loaded.eval()(images), atol=1e-4)
    print("modules_to_save with BatchNorm:", bool(kept), "- loaded predicts the same:", same)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
modules_to_save with BatchNorm: False - loaded predicts the same: False
modules_to_save with BatchNorm: True - loaded predicts the same: True
SEEN
