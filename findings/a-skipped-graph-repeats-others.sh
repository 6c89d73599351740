#!/usr/bin/env bash
# A sampler that skips a graph that is too big gives other graphs twice, and empty batches. torch_geometric 2.8.1, torch 2.13.0.
# Guess: DynamicBatchSampler(skip_too_big=True) leaves out the graph that fits into no batch, and gives each other one once.
# Seen: the next batch begins as many graphs into the order as were given so far, and those that were skipped are not counted:
# behind each of them, a graph comes twice or more in an epoch. With one at the end, there are batches without any graph.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 torch_geometric==2.8.1
cat > "$folder/tried.py" <<'CODE'
import torch
from torch_geometric.data import Data
from torch_geometric.loader import DynamicBatchSampler

for sizes in ([3, 4, 5, 2], [3, 4, 5, 20, 2], [20, 3, 4, 5], [3, 20, 20, 3, 1, 1], [3, 4, 5, 20]):
    graphs = [Data(x=torch.ones(size, 1)) for size in sizes]
    print(f"{sizes} nodes, 8 in a batch:", [batch for batch in DynamicBatchSampler(graphs, max_num=8, skip_too_big=True)])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
[3, 4, 5, 2] nodes, 8 in a batch: [[0, 1], [2, 3]]
[3, 4, 5, 20, 2] nodes, 8 in a batch: [[0, 1], [2], [4], [4]]
[20, 3, 4, 5] nodes, 8 in a batch: [[1, 2], [2], [3]]
[3, 20, 20, 3, 1, 1] nodes, 8 in a batch: [[0], [3, 4, 5], [4, 5]]
[3, 4, 5, 20] nodes, 8 in a batch: [[0, 1], [2], [], []]
SEEN
