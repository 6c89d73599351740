#!/usr/bin/env bash
# With a seed, each epoch has the same augmentations, and each worker those of the other. albumentations 2.0.8, torch 2.13.0, CPU.
# Guess: Compose(..., seed=5) draws the same numbers in each run, and other ones for each sample and epoch, in workers
# too; without it, the seeds of NumPy, random and torch count.
# Seen: without workers it is so. A worker gets a copy of the generator as it was made, in each epoch anew: both workers
# draw the same, and all epochs are one. Without seed=, no seed counts.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 albumentations==2.0.8
cat > "$folder/tried.py" <<'CODE'
import random

import albumentations
import numpy
import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, seed):
        self.transform = albumentations.Compose([albumentations.RandomBrightnessContrast(0.3, p=1)], seed=seed)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return int(self.transform(image=numpy.full((1, 1, 3), 100, numpy.uint8))["image"][0, 0, 0])


def epochs(workers):
    torch.manual_seed(0)
    loader = DataLoader(Images(5), batch_size=2, num_workers=workers)
    return [[batch.tolist() for batch in loader] for _ in range(3)]


print("no workers", epochs(0))
print("two workers", epochs(2))
found = set()
for _ in range(20):
    random.seed(0), numpy.random.seed(0), torch.manual_seed(0)
    found.add(Images(None)[0])
print("without seed=, one value after one seed:", len(found) == 1)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
no workers [[[141, 179], [174, 75]], [[140, 56], [59, 113]], [[37, 154], [58, 56]]]
two workers [[[141, 179], [141, 179]], [[141, 179], [141, 179]], [[141, 179], [141, 179]]]
without seed=, one value after one seed: False
SEEN
