#!/usr/bin/env bash
# The prediction for a graph depends on the others in its batch, also in evaluations. torch_geometric 2.8.1, torch 2.13.0, CPU.
# Guess: LayerNorm normalises the features of each node, as torch's does, so that it needs no `batch`.
# Seen: by default it takes mean and deviation over all nodes and features, and without `batch` all graphs of the batch are one
# graph. A model with norm="layer_norm" does so if it is called as model(x, edge_index). mode="node" is torch's.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet torch_geometric==2.8.1
cat > "$folder/tried.py" <<'CODE'
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCN, global_mean_pool

torch.manual_seed(0)
edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
graphs = [Data(x=scale * torch.randn(3, 4), edge_index=edges) for scale in (1.0, 1.0, 20.0)]

def predicted(model, graphs, **given):
    batch = Batch.from_data_list(graphs)
    if given:
        given = {"batch": batch.batch}
    return round(global_mean_pool(model(batch.x, batch.edge_index, **given), batch.batch)[0].item(), 4)

for name, options, given in (
    ("layer_norm", {}, {}), ("layer_norm, batch=", {}, {"batch": True}), ("mode=node", {"norm_kwargs": {"mode": "node"}}, {}),
):
    torch.manual_seed(1)
    model = GCN(4, 8, 2, 1, norm="layer_norm", **options).eval()
    alone, beside = predicted(model, graphs[:1], **given), predicted(model, graphs, **given)
    print(f"{name}: the first graph alone {alone}, beside two others {beside}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
layer_norm: the first graph alone 0.6269, beside two others 0.1744
layer_norm, batch=: the first graph alone 0.6269, beside two others 0.6269
mode=node: the first graph alone 0.5338, beside two others 0.5338
SEEN
