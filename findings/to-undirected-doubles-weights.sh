#!/usr/bin/env bash
# Making an undirected graph undirected doubles its weights. torch_geometric 2.8.1, torch 2.13.0.
# Guess: ToUndirected adds the edges that lack their opposite, and leaves an undirected graph as it is.
# Seen: it adds the opposite of each edge and sums what is then there twice, so each weight and each attribute of an edge that
# had its opposite is doubled, and those of others are not. In a graph that is partly directed, relations change.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet torch_geometric==2.8.1
cat > "$folder/tried.py" <<'CODE'
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import ToUndirected

pairs = {"undirected": [[0, 1], [1, 0]], "directed": [[0], [1]], "partly": [[0, 1, 1], [1, 0, 2]]}
for name, edges in pairs.items():
    edges = torch.tensor(edges)
    graph = Data(edge_index=edges, edge_attr=torch.full((edges.shape[1],), 0.5), num_nodes=3)
    once = ToUndirected()(graph)
    twice = ToUndirected()(once)
    print(name, graph.edge_attr.tolist(), "->", once.edge_attr.tolist(), "->", twice.edge_attr.tolist(), end=", ")
    print("reduce=mean:", ToUndirected(reduce="mean")(graph).edge_attr.tolist())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
undirected [0.5, 0.5] -> [1.0, 1.0] -> [2.0, 2.0], reduce=mean: [0.5, 0.5]
directed [0.5] -> [0.5, 0.5] -> [1.0, 1.0], reduce=mean: [0.5, 0.5]
partly [0.5, 0.5, 0.5] -> [1.0, 1.0, 0.5, 0.5] -> [2.0, 2.0, 1.0, 1.0], reduce=mean: [0.5, 0.5, 0.5, 0.5]
SEEN
