#!/usr/bin/env bash
# A missing value changes the other values of its batch. datasets 5.2.0, torch 2.13.0.
# Guess: whole numbers with a None are NaN where it is, and the others are as they were.
# Seen: with_format("torch") and "numpy" give int64 where a slice has no None, and float32 where it has one: numbers
# beyond 2 ** 24, such as ids, token offsets and times, are rounded there. So a value depends on the batch that it is
# read in.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 datasets==5.2.0
cat > "$folder/tried.py" <<'CODE'
import os

os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
from datasets import Dataset

for name in ("torch", "numpy"):
    table = Dataset.from_dict({"id": [16777217, 16777219, None, 1764441903]}).with_format(name)
    for first, last in ((0, 2), (0, 4), (3, 4)):
        values = table[first:last]["id"]
        print(name, f"rows {first} to {last}:", str(values.dtype).split(".")[-1], [int(v) if v == v else None for v in values])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
torch rows 0 to 2: int64 [16777217, 16777219]
torch rows 0 to 4: float32 [16777216, 16777220, None, 1764441856]
torch rows 3 to 4: int64 [1764441903]
numpy rows 0 to 2: int64 [16777217, 16777219]
numpy rows 0 to 4: float32 [16777216, 16777220, None, 1764441856]
numpy rows 3 to 4: int64 [1764441903]
SEEN
