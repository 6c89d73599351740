#!/usr/bin/env bash
# A rotation turns the points of a graph and leaves their normals. torch_geometric 2.8.1, torch 2.13.0, CPU.
# Guess: `Data.normal`, which SamplePoints fills, turns with `Data.pos` in RandomRotate and LinearTransformation, as it does in
# NormalizeRotation.
# Seen: only NormalizeRotation turns normals. After an augmentation, a normal that pointed out of a surface points along it, and
# a model that has normals as features learns from wrong ones without a word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 torch_geometric==2.8.1
cat > "$folder/tried.py" <<'CODE'
import torch
from torch_geometric import transforms
from torch_geometric.data import Data

square = torch.tensor([[0.0, 0, 0], [2, 0, 0], [2, 2, 0], [0, 2, 0]])
mesh = Data(pos=square, face=torch.tensor([[0, 0], [1, 2], [2, 3]]))
torch.manual_seed(0)
surface = transforms.SamplePoints(100, include_normals=True)(mesh)
matrix = torch.tensor([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]])
for name, transform in {
    "none": lambda data: data,
    "RandomRotate(90, axis=0)": transforms.RandomRotate((90, 90), axis=0),
    "LinearTransformation": transforms.LinearTransformation(matrix),
    "NormalizeRotation": transforms.Compose([transforms.LinearTransformation(matrix), transforms.NormalizeRotation()]),
}.items():
    data = surface.clone()
    if name == "NormalizeRotation":
        data.normal = data.normal @ matrix.T  # turned by hand before it
    data = transform(data)
    centred = data.pos - data.pos.mean(0)
    along = (centred @ data.normal.T).abs().max().item()
    print(f"{name}: points lie up to {along:.1f} outside of the plane of their normals")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
none: points lie up to 0.0 outside of the plane of their normals
RandomRotate(90, axis=0): points lie up to 1.0 outside of the plane of their normals
LinearTransformation: points lie up to 1.0 outside of the plane of their normals
NormalizeRotation: points lie up to 0.0 outside of the plane of their normals
SEEN
