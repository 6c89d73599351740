#!/usr/bin/env bash
# Each parameter group has the rate of the last one. torch 2.13.0, CPU.
# Guess: lr=torch.tensor(0.1), as a compiled or captured step wants it, and a LambdaLR with a function for each group give
# the rates of lr=0.1.
# Seen: groups that take their rate from the optimizer hold the same tensor, and a schedule writes into it: the last
# function decides for all. get_last_lr() agrees. With a tensor in each group, the rates are those of lr=0.1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

def rates(lr, own=False):
    weights = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    groups = [{"params": [weight], **({"lr": lr.clone()} if own else {})} for weight in weights]
    optimizer = torch.optim.SGD(groups, lr=lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda epoch: 1.0, lambda epoch: 0.01])
    for weight in weights:
        weight.grad = torch.ones(1)
    optimizer.step()
    return [round(1 - weight.item(), 4) for weight in weights], [round(float(r), 4) for r in schedule.get_last_lr()]

print("a number:", *rates(0.1))
print("a tensor:", *rates(torch.tensor(0.1)))
print("a tensor each:", *rates(torch.tensor(0.1), own=True))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
a number: [0.1, 0.001] [0.1, 0.001]
a tensor: [0.001, 0.001] [0.001, 0.001]
a tensor each: [0.1, 0.001] [0.1, 0.001]
SEEN
