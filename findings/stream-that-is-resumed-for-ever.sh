#!/usr/bin/env bash
# A stream that was resumed loses its beginning in all later epochs. datasets 5.2.0, torchdata 0.11.0, torch 2.13.0.
# Guess: load_state_dict sets where the next pass goes on, and the pass after it begins at the first row.
# Seen: each later pass begins at the loaded place too, until set_epoch is called. The state of a pass that has ended
# gives nothing at all, for ever. A StatefulDataLoader without workers does the same; with workers, the later epochs are
# whole.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 datasets==5.2.0
"$folder/env/bin/pip" install --quiet torchdata==0.11.0
cat > "$folder/tried.py" <<'CODE'
import os
from itertools import islice

os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
from datasets import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader


def stream():
    return Dataset.from_dict({"x": list(range(6))}).to_iterable_dataset()


def rows(data):
    return [row["x"] for row in data]


for seen in (4, 6):
    first, resumed = stream(), stream()
    list(islice(first, seen)) if seen < 6 else list(first)
    resumed.load_state_dict(first.state_dict())
    print(f"after {seen} of 6 rows, three passes:", rows(resumed), rows(resumed), rows(resumed))
    resumed.set_epoch(3)
    print("after set_epoch:", rows(resumed))
for workers in (0, 1):
    first = StatefulDataLoader(stream(), batch_size=None, num_workers=workers)
    left = iter(first)
    list(islice(left, 4))
    resumed = StatefulDataLoader(stream(), batch_size=None, num_workers=workers)
    resumed.load_state_dict(first.state_dict())
    print(f"StatefulDataLoader, {workers} workers:", rows(resumed), rows(resumed), rows(resumed))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
after 4 of 6 rows, three passes: [4, 5] [4, 5] [4, 5]
after set_epoch: [0, 1, 2, 3, 4, 5]
after 6 of 6 rows, three passes: [] [] []
after set_epoch: [0, 1, 2, 3, 4, 5]
StatefulDataLoader, 0 workers: [4, 5] [4, 5] [4, 5]
StatefulDataLoader, 1 workers: [4, 5] [0, 1, 2, 3, 4, 5] [0, 1, 2, 3, 4, 5]
SEEN
