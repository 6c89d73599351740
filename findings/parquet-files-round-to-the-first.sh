#!/usr/bin/env bash
# Numbers of a second file are rounded to the type of the first. duckdb 2.0.1, pyarrow 26.0.1.
# Guess: a column that is whole in one Parquet file and has fractions in the next is joined as numbers with fractions,
# as `union all` does, or is refused.
# Seen: the first file in the order of names decides: duckdb rounds 3.5 and 4.7 to 4 and 5; pyarrow refuses fractions,
# but makes float64 of a later file float32. A column that the first file lacks is dropped by both.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet duckdb==2.0.1 pyarrow==26.0.1 numpy==2.4.6 polars==2.1.0
cat > "$folder/tried.py" <<'CODE'
import os
import sys

import duckdb
import polars
import pyarrow
import pyarrow.parquet


def write(folder, *columns):
    os.makedirs(folder)
    for number, each in enumerate(columns):
        pyarrow.parquet.write_table(pyarrow.table(each), f"{folder}/{number}.parquet")


os.chdir(sys.argv[1])
write("score", {"score": [1, 2]}, {"score": [3.5, 4.7], "loss": [0.1, 0.2]})
write("width", {"x": pyarrow.array([0.5], pyarrow.float32())}, {"x": [16777217.0], "y": [1]})
print("duckdb", duckdb.sql("from 'score/*.parquet'").fetchall())
print("union all", duckdb.sql("from 'score/0.parquet' union all select score from 'score/1.parquet'").fetchall())
print("pyarrow", pyarrow.parquet.read_table("width").to_pydict())
try:
    polars.read_parquet("score/*.parquet")
except polars.exceptions.SchemaError:
    print("polars refuses")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
duckdb [(1,), (2,), (4,), (5,)]
union all [(1.0,), (2.0,), (3.5,), (4.7,)]
pyarrow {'x': [0.5, 16777216.0]}
polars refuses
SEEN
