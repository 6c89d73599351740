#!/usr/bin/env bash
# A batch has the attributes of its first graph. torch_geometric 2.8.1.
# Guess: graphs with other attributes are refused, or what some lack is left out.
# Seen: it depends on the order: if the first graph lacks an attribute, those of the others are dropped
# without a word; if a later one lacks it, KeyError. With shuffling, labels vanish from some batches.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 torch_geometric==2.8.1
cat > "$folder/tried.py" <<'CODE'
import torch
from torch_geometric.data import Batch, Data

bare, labelled = Data(x=torch.zeros(2, 1)), Data(x=torch.zeros(2, 1), y=torch.ones(1))
print("bare first:", sorted(Batch.from_data_list([bare, labelled]).keys()))
try:
    Batch.from_data_list([labelled, bare])
except KeyError as error:
    print("labelled first: KeyError", error)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
bare first: ['batch', 'ptr', 'x']
labelled first: KeyError 'y'
SEEN
