#!/usr/bin/env bash
# An evaluation in one process loses samples of the last batch. accelerate 1.15.0, torch 2.13.0, CPU.
# Guess: gather_for_metrics takes off what was added to fill the last batch, which in one process is nothing.
# Seen: it cuts the last batch to len(dataset) % batch_size, whatever the batch holds. With a sampler of a part of the
# data set samples are lost, and so are values if there are several a sample, such as tokens.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 accelerate==1.15.0
cat > "$folder/tried.py" <<'CODE'
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

accelerator = Accelerator(cpu=True)
data = TensorDataset(torch.arange(10))


def seen(loader, values=lambda samples: samples):
    return sum(len(accelerator.gather_for_metrics(values(x))) for (x,) in accelerator.prepare(loader))


print("10 samples:", seen(DataLoader(data, 4)))
print("a sampler of 7 of them:", seen(DataLoader(data, 4, sampler=SubsetRandomSampler(range(7)))))
print("3 tokens of each of 10 samples:", seen(DataLoader(data, 4), lambda samples: samples.repeat_interleave(3)))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
10 samples: 10
a sampler of 7 of them: 6
3 tokens of each of 10 samples: 26
SEEN
