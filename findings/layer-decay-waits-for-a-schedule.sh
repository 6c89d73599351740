#!/usr/bin/env bash
# A layer decay has no effect. timm 1.0.31, torch 2.13.0, CPU.
# Guess: create_optimizer_v2(layer_decay=0.5) gives early layers a smaller rate, as the groups of such a model show.
# Seen: each group has the whole rate, and beside it an `lr_scale` that no optimizer reads. timm's schedulers multiply by it;
# under a constant rate, torch's schedulers or those of transformers, all layers are trained at the full rate.
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

import timm
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler


def first_step(scheduler):
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=2)
    optimizer = create_optimizer_v2(model, opt="momentum", lr=0.1, weight_decay=0.0, layer_decay=0.1)
    scheduler(optimizer)
    first, last = model.patch_embed.proj.bias, model.head.bias
    before = [each.detach().clone() for each in (first, last)]
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    moved = [(old - new).abs().max().item() for old, new in zip(before, (first, last))]
    rates = sorted({group["lr"] for group in optimizer.param_groups})
    return f"rates {[round(rate, 5) for rate in rates]}, the first layer moves {moved[0]:.5f}, the last one {moved[1]:.5f}"


print("without a schedule:", first_step(lambda optimizer: None))
print("torch's cosine:", first_step(lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)))
print("timm's cosine:", first_step(lambda optimizer: CosineLRScheduler(optimizer, 10)))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
without a schedule: rates [0.1], the first layer moves 0.10000, the last one 0.10000
torch's cosine: rates [0.1], the first layer moves 0.10000, the last one 0.10000
timm's cosine: rates [0.0001, 0.001, 0.01, 0.1], the first layer moves 0.00010, the last one 0.10000
SEEN
