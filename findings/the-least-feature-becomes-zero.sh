#!/usr/bin/env bash
# NormalizeFeatures takes the least number of the graph from all features, before it divides. torch_geometric 2.8.1, torch 2.13.0.
# Guess: a row is divided by its sum: (2, 2) becomes (0.5, 0.5), and a row of zeros stays one.
# Seen: the least value of all nodes becomes 0 first, whether it is negative or not: (2, 2) beside (2, 4) becomes (0, 0). A single
# -1 in another node makes equal parts of a row of zeros. A node has other features in each batch, split or subgraph.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 torch_geometric==2.8.1
cat > "$folder/tried.py" <<'CODE'
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures

for name, x in {
    "zeros and counts": [[0.0, 0.0], [1.0, 3.0]],
    "the same beside -1": [[0.0, 0.0], [1.0, 3.0], [-1.0, 0.0]],
    "all above 0": [[2.0, 2.0], [2.0, 4.0]],
    "the second alone": [[2.0, 4.0]],
}.items():
    rows = NormalizeFeatures()(Data(x=torch.tensor(x))).x
    print(f"{name}: {x} becomes {[[round(value, 2) for value in row] for row in rows.tolist()]}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
zeros and counts: [[0.0, 0.0], [1.0, 3.0]] becomes [[0.0, 0.0], [0.25, 0.75]]
the same beside -1: [[0.0, 0.0], [1.0, 3.0], [-1.0, 0.0]] becomes [[0.5, 0.5], [0.33, 0.67], [0.0, 1.0]]
all above 0: [[2.0, 2.0], [2.0, 4.0]] becomes [[0.0, 0.0], [0.0, 1.0]]
the second alone: [[2.0, 4.0]] becomes [[0.0, 1.0]]
SEEN
