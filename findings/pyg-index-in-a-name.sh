#!/usr/bin/env bash
# PyG adds numbers to attributes whose name contains "index" or "batch". torch_geometric 2.8.1.
# Guess: an attribute of one's own is joined as it is; only `edge_index` is special.
# Seen: the name is searched for these words: `stock_index` is moved on by the nodes of the graphs before,
# `batch_cost` by its own largest value plus 1, both without a word. `get_example` takes it off again, so a
# look at one graph shows nothing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 torch_geometric==2.8.1
cat > "$folder/tried.py" <<'CODE'
import torch
from torch_geometric.data import Batch, Data

def graph(**own):
    return Data(x=torch.zeros(3, 1), **own)

def joined(**own):
    return Batch.from_data_list([graph(**own) for _ in range(3)])

print("stock_index", joined(stock_index=torch.tensor([7.0])).stock_index.tolist())
print("batch_cost", joined(batch_cost=torch.tensor([7.0])).batch_cost.tolist())
print("stock", joined(stock=torch.tensor([7.0])).stock.tolist())
print("one graph of it", joined(stock_index=torch.tensor([7.0])).get_example(2).stock_index.tolist())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
stock_index [7.0, 10.0, 13.0]
batch_cost [7.0, 15.0, 23.0]
stock [7.0, 7.0, 7.0]
one graph of it [7.0]
SEEN
