#!/usr/bin/env bash
# ASGD takes each rate one step late, and has no average. torch 2.13.0, CPU.
# Guess: averaged SGD steps by the rate of its group, and `ax` in its state is the average of the weights.
# Seen: a step is made with the rate that the group had at the step before, so a warm-up and a drop come a step late. t0 is
# 1,000,000: until then `ax` is a copy of the weight; and `lambd` decays weights even with weight_decay=0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

weight = torch.nn.Parameter(torch.tensor([5.0]))
optimizer = torch.optim.ASGD([weight], lr=0.1, lambd=0)
for rate in (0.1, 0.1, 0.01, 0.001, 0.001):
    optimizer.param_groups[0]["lr"] = rate
    before = weight.item()
    weight.grad = torch.ones(1)
    optimizer.step()
    print(f"rate {rate}: a step of {before - weight.item():.3f}")
print("the average is the weight:", torch.equal(optimizer.state[weight]["ax"], weight))
weight = torch.nn.Parameter(torch.tensor([5.0]))
optimizer = torch.optim.ASGD([weight], lr=0.1, weight_decay=0)
weight.grad = torch.zeros(1)
optimizer.step()
print("without a gradient or weight decay, 5 becomes", f"{weight.item():.5f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
rate 0.1: a step of 0.100
rate 0.1: a step of 0.100
rate 0.01: a step of 0.100
rate 0.001: a step of 0.010
rate 0.001: a step of 0.001
the average is the weight: True
without a gradient or weight decay, 5 becomes 4.99995
SEEN
