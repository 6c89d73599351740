#!/usr/bin/env bash
# update_bn overwrites a frozen BatchNorm, and takes two samples for as many as a hundred. torch 2.13.0, CPU.
# Guess: swa_utils.update_bn gives the statistics of all samples to the layers that are in training mode.
# Seen: it puts all layers into training mode first, so those that a fine-tuning holds in eval() lose what they were
# pretrained with. Each batch counts once: a last batch of 2 weighs as much as one of 98.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch

model = torch.nn.Sequential(torch.nn.BatchNorm1d(1), torch.nn.BatchNorm1d(1))
model[0].eval()
model[0].running_mean.fill_(7)
batches = [torch.zeros(98, 1), torch.full((2, 1), 10.0)]
torch.optim.swa_utils.update_bn(batches, model)
print("the frozen mean of 7 is", round(model[0].running_mean.item(), 4), "and its layer is frozen:", not model[0].training)
print("the mean of all samples is", torch.cat(batches).mean().item())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
the frozen mean of 7 is 5.0 and its layer is frozen: False
the mean of all samples is 0.20000000298023224
SEEN
