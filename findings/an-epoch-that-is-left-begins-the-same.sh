#!/usr/bin/env bash
# An epoch that is left by `break` is shuffled as the one before. accelerate 1.15.0, torch 2.13.0, CPU.
# Guess: a prepared loader shuffles anew in each epoch, whether the last one was read to its end or not.
# Seen: with use_seedable_sampler=True, which the Trainer of transformers takes, the epoch is counted behind the last batch alone.
# With a break after two batches of five, all epochs read the same two batches, and three fifths of the data are never seen.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet accelerate==1.15.0
cat > "$folder/tried.py" <<'CODE'
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed

def samples_seen(seedable, batches):
    set_seed(0)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=seedable))
    loader = accelerator.prepare(torch.utils.data.DataLoader(torch.arange(20), batch_size=4, shuffle=True))
    seen, first = set(), set()
    for epoch in range(20):
        for number, batch in enumerate(loader, 1):
            seen.update(batch.tolist())
            if number == 1:
                first.add(tuple(batch.tolist()))
            if number == batches:
                break
    return f"{len(seen)} of 20 samples, {'other' if len(first) > 1 else 'the same'} first batches"

for seedable in (False, True):
    for batches, until in ((5, "break at the last batch"), (2, "break at the second batch"), (None, "to the end")):
        print(f"use_seedable_sampler={seedable}, 20 epochs, {until}: {samples_seen(seedable, batches)}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
use_seedable_sampler=False, 20 epochs, break at the last batch: 20 of 20 samples, other first batches
use_seedable_sampler=False, 20 epochs, break at the second batch: 20 of 20 samples, other first batches
use_seedable_sampler=False, 20 epochs, to the end: 20 of 20 samples, other first batches
use_seedable_sampler=True, 20 epochs, break at the last batch: 20 of 20 samples, the same first batches
use_seedable_sampler=True, 20 epochs, break at the second batch: 8 of 20 samples, the same first batches
use_seedable_sampler=True, 20 epochs, to the end: 20 of 20 samples, other first batches
SEEN
