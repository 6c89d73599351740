#!/usr/bin/env bash
# Mixing images changes the data set. timm 1.0.31, torch 2.13.0, CPU.
# Guess: Mixup returns mixed images and targets, as torchvision's MixUp does, and leaves the batch that it was given.
# Seen: it mixes in place. Where batches are slices of a tensor in memory, or tensors in a list, each epoch mixes the images that
# the last one has mixed, while the labels begin anew. After some epochs, all images are averages, with the labels of one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 pillow==13.0.0 typing-extensions
"$folder/env/bin/pip" install --quiet --no-deps torchvision==0.28.0
"$folder/env/bin/pip" install --quiet numpy==2.4.6 pyyaml huggingface_hub safetensors
"$folder/env/bin/pip" install --quiet --no-deps timm==1.0.31
cat > "$folder/tried.py" <<'CODE'
import numpy
import torch

if not hasattr(torch.ops.torchvision, "nms"):  # beside a torch for CPUs; nothing of it is used
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from timm.data import Mixup
from torchvision.transforms import v2

labels = torch.arange(8) % 2

def spread(mix):
    """How far apart the images of the two labels still are after ten epochs."""
    torch.manual_seed(0)
    numpy.random.seed(0)
    images = labels.float().view(8, 1, 1, 1).repeat(1, 3, 4, 4)
    kept = images.clone()
    for epoch in range(10):
        for begin in (0, 4):
            mix(images[begin : begin + 4], labels[begin : begin + 4])
    apart = images[labels == 1].mean() - images[labels == 0].mean()
    return f"images as they were: {torch.equal(images, kept)}, of the two labels {abs(apart.item()):.1f} apart"

print("torchvision MixUp:", spread(v2.MixUp(num_classes=2)))
print("torchvision CutMix:", spread(v2.CutMix(num_classes=2)))
for name, options in {
    "timm Mixup": {"mixup_alpha": 1.0},
    "timm Mixup, as CutMix": {"cutmix_alpha": 1.0},
    "timm Mixup, each pair": {"mixup_alpha": 1.0, "mode": "pair"},
    "timm Mixup, each image": {"mixup_alpha": 1.0, "mode": "elem"},
}.items():
    print(f"{name}:", spread(Mixup(num_classes=2, **options)))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
torchvision MixUp: images as they were: True, of the two labels 1.0 apart
torchvision CutMix: images as they were: True, of the two labels 1.0 apart
timm Mixup: images as they were: False, of the two labels 0.0 apart
timm Mixup, as CutMix: images as they were: False, of the two labels 0.0 apart
timm Mixup, each pair: images as they were: False, of the two labels 0.0 apart
timm Mixup, each image: images as they were: False, of the two labels 0.0 apart
SEEN
