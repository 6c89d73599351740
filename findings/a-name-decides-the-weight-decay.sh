#!/usr/bin/env bash
# A layer called debias is not decayed. transformers 5.23.0, torch 2.13.0, CPU.
# Guess: Trainer leaves out biases and layer norms, by what they are.
# Seen: it looks for "bias" anywhere in the name, and for parts called norm. Weights of linear layers called debias,
# unbiased, bias_net or norm, and of an embedding attention_bias, have no weight decay, without a word; a parameter `shift`
# has.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 transformers==5.23.0 accelerate==1.15.0
cat > "$folder/tried.py" <<'CODE'
import tempfile

import torch
import transformers

transformers.logging.set_verbosity_error()

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("head", "debias", "unbiased", "bias_net", "norm"):
            setattr(self, name, torch.nn.Linear(2, 2, bias=False))
        self.attention_bias = torch.nn.Embedding(2, 2)
        self.shift = torch.nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return x

model = Model()
arguments = transformers.TrainingArguments(tempfile.mkdtemp(), report_to=[], use_cpu=True, weight_decay=0.1)
optimizer = transformers.Trainer(model, arguments).create_optimizer()
names = {parameter: name for name, parameter in model.named_parameters()}
for group in optimizer.param_groups:
    print(group["weight_decay"], sorted(names[parameter] for parameter in group["params"]))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
0.1 ['head.weight', 'shift']
0.0 ['attention_bias.weight', 'bias_net.weight', 'debias.weight', 'norm.weight', 'unbiased.weight']
SEEN
