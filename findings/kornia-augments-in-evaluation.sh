#!/usr/bin/env bash
# Augmentations that are a layer of a model change evaluations, too. kornia 0.9.0, torch 2.13.0, CPU.
# Guess: kornia's augmentations are modules of torch, and like nn.Dropout do nothing after model.eval().
# Seen: they do not look at `training`. Validation images are erased and flipped, at random each time.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 kornia==0.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from kornia import augmentation
from torch import nn

torch.manual_seed(0)
images = torch.rand(8, 3, 16, 16)
augment = augmentation.AugmentationSequential(
    augmentation.RandomHorizontalFlip(), augmentation.RandomErasing(p=1.0)
)
for name, layer in (("nn.Dropout", nn.Dropout(0.5)), ("AugmentationSequential", augment)):
    model = nn.Sequential(layer, nn.Flatten()).eval()
    with torch.no_grad():
        print(name, "changes evaluations:", not torch.equal(model(images), images.flatten(1)))
        print(name, "gives the same twice:", torch.equal(model(images), model(images)))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
nn.Dropout changes evaluations: False
nn.Dropout gives the same twice: True
AugmentationSequential changes evaluations: True
AugmentationSequential gives the same twice: False
SEEN
