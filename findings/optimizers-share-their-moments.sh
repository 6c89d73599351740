#!/usr/bin/env bash
# A step of one optimizer changes the moments of another. torch 2.13.0, CPU.
# Guess: load_state_dict copies, as that of a module does, so two runs may go on from one state.
# Seen: the moments of the loaded optimizer are the tensors of the state. Of two models that go on from one point, as in
# population-based training or a trial step, each moves the moments and the step count of the other. `copy.deepcopy(state)`
# holds them apart.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import copy

import torch

def fork(take):
    weights = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    first, second = (torch.optim.Adam([weight], lr=0.1) for weight in weights)
    weights[0].grad = torch.ones(1)
    first.step()
    second.load_state_dict(take(first.state_dict()))
    weights[1].grad = torch.full((1,), -100.0)
    second.step()
    weights[0].grad = torch.ones(1)
    before = weights[0].item()
    first.step()
    return round(weights[0].item() - before, 4), int(first.state[weights[0]]["step"])

print("loaded: the first one's second step and its count", fork(lambda state: state))
print("copied: the first one's second step and its count", fork(copy.deepcopy))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
loaded: the first one's second step and its count (0.0564, 3)
copied: the first one's second step and its count (-0.1, 2)
SEEN
