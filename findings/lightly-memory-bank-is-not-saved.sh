#!/usr/bin/env bash
# The memory bank of a contrastive loss is in no state_dict. lightly 1.6.0, torch 2.13.0.
# Guess: a loss module with a memory bank saves it, as modules save their buffers.
# Seen: bank and pointer are buffers with persistent=False: `loss.state_dict()` is empty, so a restarted run compares
# with random negatives until the bank, of 4,096 or 65,536 rows in papers, has been filled again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
"$folder/env/bin/pip" install --quiet --no-deps torchvision==0.28.0 lightly==1.6.0 lightly-utils==0.0.2
"$folder/env/bin/pip" install --quiet numpy pillow requests tqdm urllib3 pydantic python-dateutil aenum hydra-core pytorch-lightning
cat > "$folder/tried.py" <<'CODE'
import torch

if not hasattr(torch.ops.torchvision, "nms"):  # beside a torch for CPUs; nothing of it is used
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from lightly.loss import NTXentLoss

torch.manual_seed(0)
loss = NTXentLoss(memory_bank_size=(16, 4))
for _ in range(3):
    loss(torch.randn(4, 4), torch.randn(4, 4))
print("buffers:", [(name, tuple(each.shape)) for name, each in loss.named_buffers()])
print("saved:", list(loss.state_dict()))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
buffers: [('memory_bank.bank', (16, 4)), ('memory_bank.bank_ptr', (1,))]
saved: []
SEEN
