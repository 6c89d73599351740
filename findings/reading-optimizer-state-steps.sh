#!/usr/bin/env bash
# `get_optimizer_state_dict` of a fresh optimizer makes a step. torch 2.13.0.
# Guess: a function that gets a state changes nothing.
# Seen: if the optimizer has no state yet, it is stepped once with gradients of zero and `lr` 0. Adam then stands
# at step 1, with moments made of its weight decay, and hooks of `step` have run; an optimizer whose rate is
# not called `lr` moves the weights. So a save before the first step changes the training.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

class Own(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"rate": 0.5})
    def step(self, closure=None):
        for each in self.param_groups[0]["params"]:
            if each.grad is not None:
                each.data -= self.param_groups[0]["rate"] * (each.grad + each.data.sign())

model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.ones_(model.weight)
adam, steps = torch.optim.Adam(model.parameters(), weight_decay=0.1), []
adam.register_step_post_hook(lambda *arguments: steps.append(1))
get_optimizer_state_dict(model, adam)
state = adam.state[model.weight]
print("Adam: hooks called", len(steps), "step", int(state["step"]), f"moment {state['exp_avg'].item():.3f}")
before = model.weight.item()
get_optimizer_state_dict(model, Own(model.parameters()))
print("own optimizer: weight", before, "->", model.weight.item())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
Adam: hooks called 1 step 1 moment 0.010
own optimizer: weight 1.0 -> 0.5
SEEN
