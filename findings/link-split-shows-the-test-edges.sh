#!/usr/bin/env bash
# Edges to predict are among those that a graph network may look at. torch_geometric 2.8.1, torch 2.13.0, CPU.
# Guess: RandomLinkSplit keeps the edges of the test out of the training; whether a graph is undirected, the data know.
# Seen: an undirected graph is stored as edges in both directions, and each is split for itself: of most edges of the
# test the training has the way back, so that the score is too good. It needs is_undirected=True.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 torch_geometric==2.8.1
cat > "$folder/tried.py" <<'CODE'
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import to_undirected

torch.manual_seed(0)
edges = to_undirected(torch.randint(0, 100, (2, 400)))
graph = Data(x=torch.randn(100, 4), edge_index=edges)
print("the data say, undirected:", graph.is_undirected())
for options in ({}, {"is_undirected": True}):
    train, _, test = RandomLinkSplit(num_val=0.1, num_test=0.2, **options)(graph)
    trained = set(map(tuple, train.edge_index.T.tolist()))
    asked = test.edge_label_index[:, test.edge_label == 1].T.tolist()
    known = sum((to, begin) in trained for begin, to in asked) / len(asked)
    print(
        options,
        "- of the test's edges, the training has the way back:",
        "none" if not known else "more than half" if known > 0.5 else "some",
    )
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
the data say, undirected: True
{} - of the test's edges, the training has the way back: more than half
{'is_undirected': True} - of the test's edges, the training has the way back: none
SEEN
