#!/usr/bin/env bash
# Noise of 0.01 behind Normalize makes the darker half of an image one grey. torchvision 0.28.0, torch 2.13.0, CPU.
# Guess: GaussianNoise adds noise, and ColorJitter moves colours a little, whatever the range of the image is.
# Seen: of floats, GaussianNoise, ColorJitter and RandomAdjustSharpness cut off what is below 0 and above 1: all that was darker
# than the mean is 0, and all that was brighter than one standard deviation is 1. A blur keeps the range.
# GaussianNoise(clip=False) does, too; the others belong before Normalize.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 pillow==13.0.0 typing-extensions
"$folder/env/bin/pip" install --quiet --no-deps torchvision==0.28.0
cat > "$folder/tried.py" <<'CODE'
import torch

if not hasattr(torch.ops.torchvision, "nms"):  # beside a torch for CPUs; nothing of it is used
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from torchvision.transforms import v2
from torchvision.tv_tensors import Image

torch.manual_seed(0)
image = Image(torch.randn(3, 64, 64))
for name, transform in {
    "none": torch.nn.Identity(),
    "GaussianNoise(sigma=0.01)": v2.GaussianNoise(sigma=0.01),
    "GaussianNoise(sigma=0.01, clip=False)": v2.GaussianNoise(sigma=0.01, clip=False),
    "ColorJitter(brightness=(1.01, 1.01))": v2.ColorJitter(brightness=(1.01, 1.01)),
    "ColorJitter(saturation=(1.01, 1.01))": v2.ColorJitter(saturation=(1.01, 1.01)),
    "RandomAdjustSharpness(1.01, p=1)": v2.RandomAdjustSharpness(1.01, p=1),
    "GaussianBlur(3, sigma=0.1)": v2.GaussianBlur(3, sigma=0.1),
}.items():
    seen = transform(image)
    print(f"{name}: from {seen.min().item():.1f} to {seen.max().item():.1f}, {100 * (seen == 0).float().mean().item():.0f} in 100 are 0")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
none: from -4.3 to 4.1, 0 in 100 are 0
GaussianNoise(sigma=0.01): from 0.0 to 1.0, 51 in 100 are 0
GaussianNoise(sigma=0.01, clip=False): from -4.4 to 4.1, 0 in 100 are 0
ColorJitter(brightness=(1.01, 1.01)): from 0.0 to 1.0, 51 in 100 are 0
ColorJitter(saturation=(1.01, 1.01)): from 0.0 to 1.0, 51 in 100 are 0
RandomAdjustSharpness(1.01, p=1): from 0.0 to 1.0, 51 in 100 are 0
GaussianBlur(3, sigma=0.1): from -4.3 to 4.1, 0 in 100 are 0
SEEN
