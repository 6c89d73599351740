#!/usr/bin/env bash
# A loss of logits is infinite where its sister is 100. torch 2.13.0, CPU.
# Guess: SoftMarginLoss, log(1 + exp(-y x)), is computed as binary_cross_entropy_with_logits is, which is the same function
# for labels of -1 and 1.
# Seen: the exponential is taken as it stands. From a margin of -89 the loss is infinite and the gradient NaN, so that one
# confident mistake ends a training, as it does in float16 from -12. multilabel_soft_margin_loss is stable.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.nn import functional as F

for dtype in (torch.float32, torch.float16):
    for value in (-11.0, -12.0, -88.0, -100.0):
        x = torch.tensor([value], dtype=dtype, requires_grad=True)
        one = torch.ones(1, dtype=dtype)
        loss, same = F.soft_margin_loss(x, one), F.binary_cross_entropy_with_logits(x, one)
        gradient, = torch.autograd.grad(loss, x)
        print(f"{dtype}, {value:g}: {loss.item():.1f} with a gradient of {gradient.item():.1f}, and {same.item():.1f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
torch.float32, -11: 11.0 with a gradient of -1.0, and 11.0
torch.float32, -12: 12.0 with a gradient of -1.0, and 12.0
torch.float32, -88: 88.0 with a gradient of -1.0, and 88.0
torch.float32, -100: inf with a gradient of nan, and 100.0
torch.float16, -11: 11.0 with a gradient of -1.0, and 11.0
torch.float16, -12: inf with a gradient of nan, and 12.0
torch.float16, -88: inf with a gradient of nan, and 88.0
torch.float16, -100: inf with a gradient of nan, and 100.0
SEEN
