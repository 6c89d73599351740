#!/usr/bin/env bash
# With an adapter switched off, the model is not the one that was adapted. peft 0.21.2, torch 2.13.0, CPU.
# Guess: disable_adapter() gives the base model, as the reference of DPO or of a KL penalty needs it.
# Seen: with init_lora_weights="pissa" or "olora", which begin as the base model too, the frozen weights become what is left of
# them without the adapter. Without it the model is another one: the KL distance to it is above 0 before the first step.
# With LoRA's usual beginning, DoRA or IA3 it is the base, to the last bit.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet peft==0.21.2
cat > "$folder/tried.py" <<'CODE'
import copy
import torch
from peft import IA3Config, LoraConfig, get_peft_model
from torch import nn
from torch.nn.functional import kl_div

torch.manual_seed(0)
base, inputs = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)), torch.randn(64, 16)
given = base(inputs).log_softmax(1).detach()
layers = ["0", "2"]
for name, config in {
    "LoRA": LoraConfig(r=8, target_modules=layers),
    "LoRA, pissa": LoraConfig(r=8, target_modules=layers, init_lora_weights="pissa"),
    "LoRA, olora": LoraConfig(r=8, target_modules=layers, init_lora_weights="olora"),
    "DoRA": LoraConfig(r=8, target_modules=layers, use_dora=True),
    "IA3": IA3Config(target_modules=layers, feedforward_modules=["2"]),
}.items():
    model = get_peft_model(copy.deepcopy(base), config).eval()
    with torch.no_grad():
        adapted = model(inputs).log_softmax(1)
        with model.disable_adapter():
            reference = model(inputs).log_softmax(1)
    divergence = kl_div(reference, adapted, log_target=True, reduction="batchmean").item()
    print(f"{name}: begins as the base {torch.allclose(adapted, given, atol=1e-4)}", end=", ")
    print(f"switched off it is the base {torch.equal(reference, given)}, KL before the first step {abs(divergence):.2f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
LoRA: begins as the base True, switched off it is the base True, KL before the first step 0.00
LoRA, pissa: begins as the base True, switched off it is the base False, KL before the first step 0.02
LoRA, olora: begins as the base True, switched off it is the base False, KL before the first step 0.02
DoRA: begins as the base True, switched off it is the base True, KL before the first step 0.00
IA3: begins as the base True, switched off it is the base True, KL before the first step 0.00
SEEN
