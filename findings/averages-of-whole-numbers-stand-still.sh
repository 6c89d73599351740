#!/usr/bin/env bash
# In an averaged model, a counter that went from 1 to 100 is 1, and BatchNorm has seen 1 batch. torch 2.13.0, CPU.
# Guess: AveragedModel(use_buffers=True) averages buffers of floats, and copies or averages whole numbers.
# Seen: each step of the average of whole numbers is cut to a whole number. The mean of 1 to 100 stays at 1, in place of 50.5
# or 100. An exponential average with a decay of 0.9 stays 9 or 10 behind, and one of 0.999 does not begin to move. Pointers
# into queues and counts of codes are such buffers; a BatchNorm(momentum=None) goes by its count of batches.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

model = torch.nn.BatchNorm1d(1)
model.register_buffer("pointer", torch.tensor(1))
averages = {
    "the mean": AveragedModel(model, use_buffers=True),
    "a decay of 0.9": AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True),
    "a decay of 0.999": AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999), use_buffers=True),
}
for step in range(1, 101):
    model(torch.zeros(2, 1))
    model.pointer.fill_(step)
    for average in averages.values():
        average.update_parameters(model)
print(f"of the model: pointer {model.pointer.item()}, batches of BatchNorm {model.num_batches_tracked.item()}")
for name, average in averages.items():
    mine = average.module
    print(f"{name}: pointer {mine.pointer.item()}, batches of BatchNorm {mine.num_batches_tracked.item()}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
of the model: pointer 100, batches of BatchNorm 100
the mean: pointer 1, batches of BatchNorm 1
a decay of 0.9: pointer 90, batches of BatchNorm 90
a decay of 0.999: pointer 1, batches of BatchNorm 1
SEEN
