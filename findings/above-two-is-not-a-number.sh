#!/usr/bin/env bash
# A filter `loss > 2` keeps rows of NaN in some libraries. pylance 14.0.2, polars 2.1.0, duckdb 2.0.1, pyarrow 26.0.1, pandas 3.1.1.
# Guess: no comparison with NaN is true, in none of them.
# Seen: in Lance, Polars and DuckDB, NaN is above all numbers and equal to itself: `loss > 2` keeps it, `loss <= 2` drops it.
# pandas and pyarrow drop it in both. Their maxima do not follow: that of Polars is the greatest number, and that of DuckDB NaN.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet pylance==14.0.2 polars==2.1.0 duckdb==2.0.1 pyarrow==26.0.1 pandas==3.1.1 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import sys

import duckdb
import lance
import pandas
import polars
import pyarrow
import pyarrow.compute

nan = float("nan")
table = pyarrow.table({"loss": [1.0, nan, 3.0]})
stored = lance.write_dataset(table, sys.argv[1] + "/losses.lance")
frame, polar = pandas.DataFrame({"loss": [1.0, nan, 3.0]}), polars.DataFrame({"loss": [1.0, nan, 3.0]})
field = pyarrow.compute.field("loss")
print("lance:", [stored.to_table(filter=f"loss {sign} 2")["loss"].to_pylist() for sign in (">", "<=")])
print("polars:", [polar.filter(mask)["loss"].to_list() for mask in (polars.col("loss") > 2, polars.col("loss") <= 2)], "maximum", polar["loss"].max())
of_duckdb = [[row[0] for row in duckdb.sql(f"SELECT loss FROM polar WHERE loss {sign} 2").fetchall()] for sign in (">", "<=")]
print("duckdb:", of_duckdb, "maximum", duckdb.sql("SELECT max(loss) FROM polar").fetchall()[0][0])
print("pyarrow:", [table.filter(mask)["loss"].to_pylist() for mask in (field > 2, field <= 2)], "maximum", pyarrow.compute.max(table["loss"]).as_py())
print("pandas:", [frame[mask]["loss"].tolist() for mask in (frame.loss > 2, frame.loss <= 2)], "maximum", frame.loss.max())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
lance: [[nan, 3.0], [1.0]]
polars: [[nan, 3.0], [1.0]] maximum 3.0
duckdb: [[nan, 3.0], [1.0]] maximum nan
pyarrow: [[3.0], [1.0]] maximum 3.0
pandas: [[3.0], [1.0]] maximum 3.0
SEEN
