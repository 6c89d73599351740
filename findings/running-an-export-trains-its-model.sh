#!/usr/bin/env bash
# A program that was exported and the model share their weights, until the model is moved. torch 2.13.0, CPU.
# Guess: torch.export.export takes the weights as they are, and later training leaves the program alone.
# Seen: the program has the model's own parameters and buffers: it changes with each step, and running it in training mode moves
# the statistics of the model's BatchNorm. Numbers of Python stay as they were at the export, and after load_state_dict with
# assign=True the program keeps the old weights: what it computes is partly of then and partly of now.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.scale = nn.Linear(3, 3), nn.BatchNorm1d(3), 2.0

    def forward(self, inputs):
        return self.norm(self.layer(inputs)) * self.scale

torch.manual_seed(0)
model, inputs = Model(), torch.randn(8, 3)
program = torch.export.export(model, (inputs,))
before = model.norm.running_mean.clone()
program.module()(inputs)
print("running the program moves the model's statistics:", not torch.equal(before, model.norm.running_mean))
model.eval()
program = torch.export.export(model, (inputs,))

def changes(do):
    before = program.module()(inputs)
    do()
    return not torch.equal(before, program.module()(inputs))

def step():
    nn.init.normal_(model.layer.weight)

def scale():
    model.scale = 3.0

print("the program follows a change of the weights:", changes(step))
print("the program follows a change of a number:", changes(scale))
print("it follows load_state_dict(assign=True):", changes(lambda: model.load_state_dict(Model().state_dict(), assign=True)))
print("and a change of the weights after it:", changes(step))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
running the program moves the model's statistics: True
the program follows a change of the weights: True
the program follows a change of a number: False
it follows load_state_dict(assign=True): False
and a change of the weights after it: False
SEEN
