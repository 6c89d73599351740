#!/usr/bin/env bash
# A log has other numbers and other names when pandas has read it. pandas 3.1.1.
# Guess: read_json(lines=True) gives the numbers that json.dumps wrote, to the last bit, as read_csv does of a table, and
# texts as texts.
# Seen: nine of ten floats differ in the last bits; precise_float=True reads them exactly. Runs called 007 and 1e3 are 7 and
# 1000, and whole numbers in a column become dates if its name ends with `_at` or `_time`, or begins with `timestamp`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet numpy==2.4.6 pandas==3.1.1
cat > "$folder/tried.py" <<'CODE'
import io
import json
import random

import pandas

random.seed(0)
losses = [random.random() for _ in range(1000)]
lines = "\n".join(json.dumps({"loss": loss}) for loss in losses)
table = pandas.DataFrame({"loss": losses}).to_csv(index=False)
for name, read in {
    "read_json": pandas.read_json(io.StringIO(lines), lines=True),
    "read_json(precise_float=True)": pandas.read_json(io.StringIO(lines), lines=True, precise_float=True),
    "read_csv": pandas.read_csv(io.StringIO(table)),
}.items():
    print(f"{name}: {sum(a == b for a, b in zip(losses, read['loss']))} of 1000 are equal")
rows = [{"run": run, "epoch": 1, "step_time": 40_000_000, "started_at": 1764495000} for run in ("007", "1e3")]
read = pandas.read_json(io.StringIO("\n".join(map(json.dumps, rows))), lines=True)
for name in read:
    print(f"{name}: {rows[0][name]!r} and {rows[1][name]!r} are {[str(value) for value in read[name]]}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
read_json: 81 of 1000 are equal
read_json(precise_float=True): 1000 of 1000 are equal
read_csv: 1000 of 1000 are equal
run: '007' and '1e3' are ['7.0', '1000.0']
epoch: 1 and 1 are ['1', '1']
step_time: 40000000 and 40000000 are ['1971-04-08 23:06:40', '1971-04-08 23:06:40']
started_at: 1764495000 and 1764495000 are ['2025-11-30 09:30:00', '2025-11-30 09:30:00']
SEEN
