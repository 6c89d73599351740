#!/usr/bin/env bash
# The type of a batch of numbers follows from its first sample. torch 2.13.0, CPU.
# Guess: numbers that are partly whole, as JSON and CSV give them (1 and 2.5), become one floating-point type in all batches.
# Seen: default_collate looks at the first sample. 1 and 2.5 are float32, 2.5 and 1 are float64; whole numbers alone are
# int64. So the type changes from batch to batch with the order, and a loss of float64 is computed in double precision.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import json

import torch
from torch.utils.data import DataLoader

samples = json.loads("[1, 2.5, 3.5, 4, 5, 6, 16777217, 8.5]")
for batch in DataLoader(samples, batch_size=2):
    loss = torch.nn.functional.mse_loss(torch.zeros(2), batch)
    print(batch.dtype, batch.tolist(), "loss in", loss.dtype)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
torch.float32 [1.0, 2.5] loss in torch.float32
torch.float64 [3.5, 4.0] loss in torch.float64
torch.int64 [5, 6] loss in torch.float32
torch.float32 [16777216.0, 8.5] loss in torch.float32
SEEN
