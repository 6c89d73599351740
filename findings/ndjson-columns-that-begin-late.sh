#!/usr/bin/env bash
# A metric that begins in row 101 of a log is not in the table. polars 2.1.0.
# Guess: read_ndjson has a column for each name of the file, as pandas, pyarrow and duckdb have, or fails.
# Seen: it looks at the first 100 rows for names and drops all others, so a table of a training log has no `val/loss` at
# all if the first validation is later. If such a name stands there with null, it is an error. infer_schema_length=None
# has all.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet polars==2.1.0 pyarrow==26.0.1
cat > "$folder/tried.py" <<'CODE'
import json
import sys

import polars
import pyarrow.json

with open(f"{sys.argv[1]}/rows.jsonl", "w") as file:
    for n in range(200):
        file.write(json.dumps({"iteration": n, "loss": 1.5, **({"val/loss": 0.5} if n >= 100 else {})}) + "\n")
print("polars", polars.read_ndjson(f"{sys.argv[1]}/rows.jsonl").columns)
print("polars, lazy", polars.scan_ndjson(f"{sys.argv[1]}/rows.jsonl").collect().columns)
print("pyarrow", pyarrow.json.read_json(f"{sys.argv[1]}/rows.jsonl").column_names)
print("without a limit", polars.read_ndjson(f"{sys.argv[1]}/rows.jsonl", infer_schema_length=None).columns)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
polars ['iteration', 'loss']
polars, lazy ['iteration', 'loss']
pyarrow ['iteration', 'loss', 'val/loss']
without a limit ['iteration', 'loss', 'val/loss']
SEEN
