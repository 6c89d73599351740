#!/usr/bin/env bash
# The name of a folder replaces a column of the files in it. duckdb 2.0.1.
# Guess: `from 'runs/*/rows.csv'` gives what is in the files, as pandas, pyarrow and polars do of the same file.
# Seen: in a folder `lr=0.1`, as sweeps name them, the column `lr` of CSV, JSON and Parquet files is replaced by the
# text '0.1', also where a schedule has changed the rate in each row. With hive_partitioning=false it is the file's.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet duckdb==2.0.1 pandas==3.1.1 polars==2.1.0
cat > "$folder/tried.py" <<'CODE'
import json
import os
import sys

import duckdb
import pandas
import polars

os.chdir(sys.argv[1])
os.makedirs("runs/lr=0.1")
rows = [{"iteration": 1, "loss": 0.5, "lr": 0.1}, {"iteration": 2, "loss": 0.4, "lr": 0.05}]
pandas.DataFrame(rows).to_csv("runs/lr=0.1/rows.csv", index=False)
with open("runs/lr=0.1/rows.jsonl", "w") as file:
    file.writelines(json.dumps(row) + "\n" for row in rows)
duckdb.sql("copy (from 'runs/*/rows.csv') to 'other.csv'")
print("pandas", pandas.read_csv("runs/lr=0.1/rows.csv")["lr"].tolist())
print("polars", polars.scan_csv("runs/*/rows.csv").collect()["lr"].to_list())
for path in ("runs/*/rows.csv", "runs/*/rows.jsonl"):
    print("duckdb", duckdb.sql(f"select lr from '{path}'").fetchall())
print("without", duckdb.sql("select lr from read_csv('runs/*/rows.csv', hive_partitioning=false)").fetchall())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
pandas [0.1, 0.05]
polars [0.1, 0.05]
duckdb [('0.1',), ('0.1',)]
duckdb [('0.1',), ('0.1',)]
without [(0.1,), (0.05,)]
SEEN
