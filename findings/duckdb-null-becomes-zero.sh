#!/usr/bin/env bash
# A missing value becomes 0 or False. duckdb 2.0.1, torch 2.13.0.
# Guess: .torch() gives NaN for NULL as .df() does, or refuses it.
# Seen: fetchnumpy() gives masked arrays, and the tensor is what lies behind the mask: a missing label is class 0, a
# missing measurement is 0.0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 duckdb==2.0.1 pandas==3.1.1
cat > "$folder/tried.py" <<'CODE'
import duckdb

rows = "from (values (1, 1.5::float, true), (null, null, null), (3, 2.5, true)) rows(label, value, flag)"
print("df", {name: column.tolist() for name, column in duckdb.sql(f"select * {rows}").df().items()})
print("torch", {name: column.tolist() for name, column in duckdb.sql(f"select * {rows}").torch().items()})
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
df {'label': [1, <NA>, 3], 'value': [1.5, nan, 2.5], 'flag': [True, <NA>, True]}
torch {'label': [1, 0, 3], 'value': [1.5, 0.0, 2.5], 'flag': [True, False, True]}
SEEN
