#!/usr/bin/env bash
# Times are rounded to two minutes, and images take eight times the memory. datasets 5.2.0, torch 2.13.0.
# Guess: with_format("torch") gives tensors of the columns' types, as the features show them.
# Seen: float64 becomes float32 and each whole number int64. Times in seconds that are a minute apart are equal, also in a
# stream; lists of uint8 are int64. with_format("numpy") does the same; with_format("torch", dtype=torch.float64) keeps times.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet datasets==5.2.0
cat > "$folder/tried.py" <<'CODE'
import torch
from datasets import Dataset

data = Dataset.from_dict({"time": [1764495000.5, 1764495060.5, 1764495120.5]})
print("features:", data.features["time"].dtype)
for name, rows in {
    'with_format("torch")': data.with_format("torch")[:],
    'with_format("numpy")': data.with_format("numpy")[:],
    'with_format("torch", dtype=torch.float64)': data.with_format("torch", dtype=torch.float64)[:],
    "plain": data[:],
}.items():
    times = [float(value) for value in rows["time"]]
    print(f"{name}: {times}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
features: float64
with_format("torch"): [1764494976.0, 1764495104.0, 1764495104.0]
with_format("numpy"): [1764494976.0, 1764495104.0, 1764495104.0]
with_format("torch", dtype=torch.float64): [1764495000.5, 1764495060.5, 1764495120.5]
plain: [1764495000.5, 1764495060.5, 1764495120.5]
SEEN
