#!/usr/bin/env bash
# A perceptron drops out its own outputs. torchvision 0.28.0, torch 2.13.0, CPU.
# Guess: `torchvision.ops.MLP(4, [8, 3], dropout=0.5)` drops hidden units, and gives three logits behind its last Linear.
# Seen: a Dropout stands behind the last Linear too. In training, half of the logits are 0 and the others are doubled: a perfect
# regression has a loss that does not fall, and a classifier is told that the classes it drops are as likely as others.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 pillow==13.0.0 typing-extensions
"$folder/env/bin/pip" install --quiet --no-deps torchvision==0.28.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torch import nn

if not hasattr(torch.ops.torchvision, "nms"):  # beside a torch for CPUs; nothing of it is used
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from torchvision.ops import MLP

torch.manual_seed(0)
model = MLP(4, [8, 3], dropout=0.5)
print("layers:", ", ".join(type(layer).__name__ for layer in model))
outputs = model(torch.randn(1000, 4))
print("outputs that are 0 in training: about", round((outputs == 0).float().mean().item(), 1))
nn.init.zeros_(model[-2].weight)
nn.init.ones_(model[-2].bias)
ones = torch.ones(100_000, 3)
for mode in (True, False):
    loss = nn.functional.mse_loss(model.train(mode)(torch.randn(100_000, 4)), ones).item()
    print(f"loss of a model that has learned its targets, {'training' if mode else 'evaluation'}: {loss:.1f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
layers: Linear, ReLU, Dropout, Linear, Dropout
outputs that are 0 in training: about 0.5
loss of a model that has learned its targets, training: 1.0
loss of a model that has learned its targets, evaluation: 0.0
SEEN
