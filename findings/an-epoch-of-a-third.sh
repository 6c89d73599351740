#!/usr/bin/env bash
# An epoch has a third of the images. timm 1.0.31, torch 2.13.0, CPU.
# Guess: RepeatAugSampler(num_repeats=3) gives each image three times an epoch, or its length says that it does not.
# Seen: it gives as many numbers as there are images, rounded down to 256, and each three times: an epoch has a third of the
# images, a quarter of them for 300. Its length is that of a whole epoch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
"$folder/env/bin/pip" install --quiet torchvision==0.28.0
"$folder/env/bin/pip" install --quiet timm==1.0.31
cat > "$folder/tried.py" <<'CODE'
import torch

if not hasattr(torch.ops.torchvision, "nms"):  # beside a torch for CPUs; nothing of it is used
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from timm.data.distributed_sampler import RepeatAugSampler

for count in (200, 300, 1000):
    sampler = RepeatAugSampler(range(count), num_replicas=1, rank=0, num_repeats=3)
    given = list(sampler)
    print(f"{count} images: a length of {len(sampler)}, {len(given)} are given, {len(set(given))} different ones")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
200 images: a length of 200, 200 are given, 67 different ones
300 images: a length of 256, 256 are given, 86 different ones
1000 images: a length of 768, 768 are given, 256 different ones
SEEN
