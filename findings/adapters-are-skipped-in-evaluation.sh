#!/usr/bin/env bash
# An evaluation leaves out the adapters of an encoder. peft 0.21.2, torch 2.13.0, CPU.
# Guess: a LoRA on linear1 and linear2 of nn.TransformerEncoderLayer works in evaluations as it does in training.
# Seen: in eval() the layer hands the frozen weights to one fused function, and calls no adapter: the validation is that of the
# base model, to the last bit, however well the adapters are trained. The same holds for any other layer that is put in the
# place of linear1, as soon as no gradients are taken, and GELU("tanh") becomes the exact GELU there.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet peft==0.21.2
cat > "$folder/tried.py" <<'CODE'
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 1)

    def forward(self, texts):
        return self.head(self.encoder(texts)).mean(1)

torch.manual_seed(0)
texts, scores = torch.randn(64, 5, 16), torch.randn(64, 1)
model = get_peft_model(Model(), LoraConfig(r=8, target_modules=["linear1", "linear2"]))
optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-2)

def loss():
    return nn.functional.mse_loss(model(texts), scores)

for _ in range(200):
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()
trained = loss().item()
model.eval()
with_gradients = loss().item()
with torch.no_grad():
    evaluated = loss().item()
    with model.disable_adapter():
        base = loss().item()
print("the training has halved the loss:", trained < base / 2)
print("eval() has the loss of the training:", abs(with_gradients - trained) < 1e-4)
print("eval() and no_grad() has it:", abs(evaluated - trained) < 1e-4)
print("eval() and no_grad() is the base model:", evaluated == base)

class Doubled(nn.Linear):
    def forward(self, inputs):
        return 2 * super().forward(inputs)

for name, activation, first in (
    ("a subclass of Linear", "relu", Doubled(16, 32)),
    ('GELU("tanh")', nn.GELU("tanh"), nn.Linear(16, 32)),
    ("GELU()", nn.GELU(), nn.Linear(16, 32)),
):
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, activation=activation, batch_first=True)
    layer.linear1 = first
    training = layer(texts).detach()
    with torch.no_grad():
        print(f"{name} is the same in evaluations:", torch.allclose(training, layer.eval()(texts), atol=1e-5))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
the training has halved the loss: True
eval() has the loss of the training: False
eval() and no_grad() has it: False
eval() and no_grad() is the base model: True
a subclass of Linear is the same in evaluations: False
GELU("tanh") is the same in evaluations: False
GELU() is the same in evaluations: True
SEEN
