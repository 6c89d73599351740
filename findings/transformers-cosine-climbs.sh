#!/usr/bin/env bash
# A cosine schedule that is over climbs back to the full rate. transformers 5.23.0.
# Guess: after `num_training_steps` the rate stays at its end, as linear, WSD and hard restarts do.
# Seen: cosine and cosine with a smallest rate go up again, to the whole rate after as many steps again.
# A run that is a little longer than planned trains at a growing rate.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 transformers==5.23.0
cat > "$folder/tried.py" <<'CODE'
import torch
from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

def rates(make, steps=8, run=16):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    schedule, seen = make(optimizer, 0, steps), []
    for _ in range(run + 1):
        seen.append(round(schedule.get_last_lr()[0], 2))
        optimizer.step()
        schedule.step()
    return seen[::4]

print("cosine, each 4 steps of 8 planned", rates(get_cosine_schedule_with_warmup))
print("linear, each 4 steps of 8 planned", rates(get_linear_schedule_with_warmup))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
cosine, each 4 steps of 8 planned [1.0, 0.5, 0.0, 0.5, 1.0]
linear, each 4 steps of 8 planned [1.0, 0.5, 0.0, 0.0, 0.0]
SEEN
