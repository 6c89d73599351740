#!/usr/bin/env bash
# All parameter groups are trained at the rate of the first one. torch-optimizer 0.3.0, torch 2.13.0, CPU.
# Guess: a group with lr=0.0001, for a body that is fine-tuned, makes steps a hundredth as long as one with 0.01.
# Seen: RAdam keeps the length of a step for all groups, with the rate of whichever asked first. The second group's rate has
# no effect, and neither has a schedule of it, nor a rate of 0. torch.optim.RAdam and groups with other betas are right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet torch-optimizer==0.3.0
cat > "$folder/tried.py" <<'CODE'
import torch
import torch_optimizer

def moved(kind, rates, **second):
    weights = [torch.nn.Parameter(torch.zeros(4)) for _ in rates]
    groups = [{"params": [weight], "lr": rate} for weight, rate in zip(weights, rates)]
    groups[1] |= second
    optimizer = kind(groups)
    for _ in range(20):
        for weight in weights:
            weight.grad = torch.ones(4)
        optimizer.step()
    return [round(-weight[0].item(), 5) for weight in weights]

for rates in ((0.01, 0.0001), (0.0001, 0.01)):
    print(f"rates {rates}: torch {moved(torch.optim.RAdam, rates)}, torch-optimizer {moved(torch_optimizer.RAdam, rates)}", end=", ")
    print("other betas", moved(torch_optimizer.RAdam, rates, betas=(0.9, 0.9991)))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
rates (0.01, 0.0001): torch [0.05892, 0.00059], torch-optimizer [0.05892, 0.05892], other betas [0.05892, 0.00058]
rates (0.0001, 0.01): torch [0.00059, 0.05892], torch-optimizer [0.00059, 0.00059], other betas [0.00059, 0.05846]
SEEN
