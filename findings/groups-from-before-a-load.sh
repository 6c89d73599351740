#!/usr/bin/env bash
# A parameter group that a script holds is none of the optimizer's after a load. torch 2.13.0.
# Guess: `load_state_dict` fills the groups and the state that the optimizer has, as a module's does its parameters.
# Seen: the optimizer has new lists and dicts. A rate that is set in a group from before the load moves nothing, and
# `optimizer.state` from before is as empty as at the start. A function that held them works until the first resume.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cat > "$folder/tried.py" <<'CODE'
from copy import deepcopy

import torch


def begin():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.9)
    return weight, optimizer, optimizer.param_groups[0], optimizer.state


def stepped(weight, optimizer):
    before = weight.detach().clone()
    weight.grad = torch.ones(2)
    optimizer.step()
    return round(float((before - weight.detach())[0]), 4)


weight, optimizer, head, moments = begin()
stepped(weight, optimizer)
saved = deepcopy(optimizer.state_dict())
head["lr"] = 0.0
print("without a load", stepped(weight, optimizer), "states", len(moments))

weight, optimizer, head, moments = begin()
optimizer.load_state_dict(saved)
head["lr"] = 0.0
print("after a load", stepped(weight, optimizer), "states", len(moments))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
without a load 0.0 states 1
after a load 0.95 states 0
SEEN
