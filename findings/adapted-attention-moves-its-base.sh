#!/usr/bin/env bash
# A frozen weight moves while its adapter is trained. peft 0.21.2, torch 2.13.0, CPU.
# Guess: LoRA leaves the base model bit for bit as it was, so that an adapter fits to a fresh base.
# Seen: for nn.MultiheadAttention, each forward pass adds the adapter to the base weight and subtracts it again, also in
# evaluations. Rounding stays behind and adds up: in bfloat16 the frozen weight is soon off by more than a hundredth.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet peft==0.21.2 transformers==5.23.0
cat > "$folder/tried.py" <<'CODE'
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.attention(x, x, x)[0])

for dtype in (torch.float32, torch.bfloat16):
    for target in ("attention", "head"):
        torch.manual_seed(0)
        model = get_peft_model(Model().to(dtype), LoraConfig(target_modules=[target], r=4))
        base = {name: value.clone() for name, value in model.state_dict().items() if "lora" not in name}
        optimizer = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], lr=0.01)
        for step in range(300):
            optimizer.zero_grad()
            (model(torch.randn(8, 3, 16, dtype=dtype)).float() - 1).square().mean().backward()
            optimizer.step()
        after = model.state_dict()
        off = max((after[name] - value).abs().max().item() for name, value in base.items())
        print(f"{dtype}, adapter of {target}: the base moved: {off > 0}, by more than 0.01: {off > 0.01}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
torch.float32, adapter of attention: the base moved: True, by more than 0.01: False
torch.float32, adapter of head: the base moved: False, by more than 0.01: False
torch.bfloat16, adapter of attention: the base moved: True, by more than 0.01: True
torch.bfloat16, adapter of head: the base moved: False, by more than 0.01: False
SEEN
