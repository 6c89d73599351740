#!/usr/bin/env bash
# After a long run of bad batches, a gradient scaler makes the model infinite. torch 2.13.0, CPU.
# Guess: GradScaler skips steps with gradients that are not finite, so a broken shard costs time, not the model.
# Seen: it halves the scale at each, without a bound. After 144 of them, from the default scale, its inverse is infinite:
# the next good batch passes the check, which looks at the gradient before it is divided, and the weight becomes -infinity.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

for bad in (100, 143, 144):
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.1), torch.amp.GradScaler("cpu")
    for number in range(bad + 1):
        optimizer.zero_grad()
        loss = (weight * (float("nan") if number < bad else 1.0)).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    print(f"{bad} bad batches and a good one: scale {scaler.get_scale():.1e}, weight {weight.item():.1f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
100 bad batches and a good one: scale 5.2e-26, weight 0.9
143 bad batches and a good one: scale 5.9e-39, weight 0.9
144 bad batches and a good one: scale 2.9e-39, weight -inf
SEEN
