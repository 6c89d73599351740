#!/usr/bin/env bash
# Rotate by 90 degrees turns an image the other way round than Rotate90. monai 1.6.1, torch 2.13.0.
# Guess: Rotate(pi / 2) and Rotate90(k=1) are one turn, so that one augments as the other, or undoes what it did by -pi / 2.
# Seen: Rotate90 turns as torch.rot90 and numpy.rot90 do, and Rotate turns backwards; so does Affine. Both together give the
# image from before. With RandRotate90 in the training and Rotate in a pipeline of tests, directions are exchanged.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet monai==1.6.1
cat > "$folder/tried.py" <<'CODE'
import math

import torch
from monai.transforms import Compose, Rotate, Rotate90

image = torch.tensor([[[0.0, 1.0], [2.0, 3.0]]])
for name, turn in {
    "torch.rot90": lambda x: torch.rot90(x, 1, (1, 2)),
    "Rotate90(k=1)": Rotate90(k=1),
    "Rotate(pi / 2)": Rotate(math.pi / 2),
    "both": Compose([Rotate90(k=1), Rotate(math.pi / 2)]),
}.items():
    print(f"{name}: {[[round(value) for value in row] for row in turn(image)[0].tolist()]}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
torch.rot90: [[1, 3], [0, 2]]
Rotate90(k=1): [[1, 3], [0, 2]]
Rotate(pi / 2): [[2, 0], [3, 1]]
both: [[0, 1], [2, 3]]
SEEN
