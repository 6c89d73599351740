#!/usr/bin/env bash
# Labels behind a whole one lose what is behind the point. transformers 5.23.0, torch 2.13.0, CPU.
# Guess: the collator that the Trainer takes without a tokenizer makes 1.0 and 0.5 of the labels 1 and 0.5, as torch.tensor does.
# Seen: default_data_collator looks at the first sample of a batch. If its label is a whole number, all labels of the batch become
# whole: 0.5 is 0. The next batch may have them right, and a shuffle decides which. A field that is None in the first sample is
# left out for all.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet transformers==5.23.0
cat > "$folder/tried.py" <<'CODE'
import torch
from transformers import default_data_collator

rows = [{"x": [0.0], "label": 1}, {"x": [1.0], "label": 0.5}, {"x": [2.0], "label": 0.25}]
for order in ((0, 1, 2), (1, 0, 2)):
    batch = default_data_collator([rows[index] for index in order])
    given = [rows[index]["label"] for index in order]
    print(f"labels {given}: {batch['labels'].tolist()} of {str(batch['labels'].dtype)[6:]}, by torch {torch.tensor(given).tolist()}")
for weights in ((None, 2.0), (2.0, 3.0)):
    batch = default_data_collator([{"x": [0.0], "weight": weight} for weight in weights])
    print(f"weights {weights}: the batch has {', '.join(sorted(batch))}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
labels [1, 0.5, 0.25]: [1, 0, 0] of int64, by torch [1.0, 0.5, 0.25]
labels [0.5, 1, 0.25]: [0.5, 1.0, 0.25] of float32, by torch [0.5, 1.0, 0.25]
weights (None, 2.0): the batch has x
weights (2.0, 3.0): the batch has weight, x
SEEN
