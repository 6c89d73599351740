#!/usr/bin/env bash
# Printing a model trains, freezes or thaws it. torchinfo 1.8.0, torchsummary 1.5.1, ptflops 0.7.5, thop 0.1.1, torch 2.13.0.
# Guess: a summary before the training changes nothing but the random numbers that it draws.
# Seen: torchsummary runs noise in training mode, which moves the running statistics of BatchNorm. torchinfo and thop give all
# layers the mode of the model, so that a BatchNorm frozen by eval() trains on. ptflops leaves eval() behind: no dropout.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet torchinfo==1.8.0 torchsummary==1.5.1 ptflops==0.7.5 thop==0.1.1.post2209072238
cat > "$folder/tried.py" <<'CODE'
import contextlib
import io

import ptflops
import thop
import torch
import torchinfo
import torchsummary
from torch import nn

summaries = {
    "torchinfo": lambda model: torchinfo.summary(model, (1, 3, 8, 8), verbose=0),
    "torchsummary": lambda model: torchsummary.summary(model, (3, 8, 8), device="cpu"),
    "ptflops": lambda model: ptflops.get_model_complexity_info(model, (3, 8, 8), print_per_layer_stat=False),
    "thop": lambda model: thop.profile(model, (torch.zeros(1, 3, 8, 8),), verbose=False),
}
for name, summary in summaries.items():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Dropout())
    model.train()
    model[3].eval()  # frozen
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with contextlib.redirect_stdout(io.StringIO()):
        summary(model)
    moved = any(not torch.equal(before[key], value) for key, value in model.state_dict().items())
    print(f"{name:<12} dropout trains: {model[4].training}, frozen layer trains: {model[3].training}, statistics moved: {moved}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
torchinfo    dropout trains: True, frozen layer trains: True, statistics moved: False
torchsummary dropout trains: True, frozen layer trains: False, statistics moved: True
ptflops      dropout trains: False, frozen layer trains: False, statistics moved: False
thop         dropout trains: True, frozen layer trains: True, statistics moved: False
SEEN
