#!/usr/bin/env bash
# A resume leaves out samples for good. torchdata 0.11.0, torch 2.13.0.
# Guess: the state of a ParallelMapper(in_order=False) holds which items are under way, or counts those that it has
# given.
# Seen: it counts how many were given and goes on behind as many items of the source. Those that a slow item let
# overtake it come never or twice, while the number of samples is right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet torchdata==0.11.0
cat > "$folder/tried.py" <<'CODE'
import threading

import torch
from torch.utils.data import SequentialSampler
from torchdata.nodes import Loader, ParallelMapper, SamplerWrapper

later = threading.Event()


def slow_three(number):
    if number == 3:
        later.wait()
    return number


def loader():
    return Loader(ParallelMapper(SamplerWrapper(SequentialSampler(range(20))), slow_three, num_workers=2, in_order=False))


first = loader()
items = iter(first)
given = [next(items) for _ in range(8)]
state = first.state_dict()
later.set()
rest = list(items)
resumed = loader()
resumed.load_state_dict(state)
again = list(resumed)
print("without a resume, each once:", sorted(given + rest) == list(range(20)))
print("with a resume, missing:", sorted({*range(20)} - {*given, *again}), "twice:", sorted({*given} & {*again}))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
without a resume, each once: True
with a resume, missing: [3] twice: []
SEEN
