#!/usr/bin/env bash
# A seed does not fix an epoch's order: it depends on the epochs before. pytorch-metric-learning 2.9.0, torch 2.13.0.
# Guess: MPerClassSampler draws from NumPy's generator alone, so the same seed gives the same epoch.
# Seen: it shuffles lists in place that the last epoch has left shuffled; the same seed gives another epoch the second
# time. It has no state_dict: generators that are put back after a restart do not bring the epoch back.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
"$folder/env/bin/pip" install --quiet pytorch-metric-learning==2.9.0
cat > "$folder/tried.py" <<'CODE'
import numpy as np
from pytorch_metric_learning.samplers import MPerClassSampler

def made():
    return MPerClassSampler([0] * 4 + [1] * 4 + [2] * 4, m=2, batch_size=4, length_before_new_iter=12)

def epoch(sampler):
    np.random.seed(0)
    return [int(index) for index in sampler]

sampler = made()
first, second = epoch(sampler), epoch(sampler)
print("a new one:", epoch(made()) == first)
print("the same one again:", second == first, "state_dict:", hasattr(sampler, "state_dict"))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
a new one: True
the same one again: False state_dict: False
SEEN
