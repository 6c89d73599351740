#!/usr/bin/env bash
# The same number means another class in each row group of one file. pyarrow 26.0.1.
# Guess: read_dictionary=["label"] gives each class of a file a number, as categories of pandas are.
# Seen: each row group has a dictionary of its own, in the order in which classes come there, in read_table and in
# iter_batches. `indices`, taken for labels, are 0 for each class once. `unify_dictionaries()` of the table numbers them
# together.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet numpy==2.4.6 pyarrow==26.0.1
cat > "$folder/tried.py" <<'CODE'
import sys

import pyarrow
from pyarrow import parquet

labels = ["cat", "dog", "bird", "dog", "bird", "cat", "bird", "cat"]
file = f"{sys.argv[1]}/labels.parquet"
parquet.write_table(pyarrow.table({"label": labels}), file, row_group_size=3)
table = parquet.read_table(file, read_dictionary=["label"])
batches = parquet.ParquetFile(file, read_dictionary=["label"]).iter_batches(batch_size=3)
print("labels:", labels)
print("read_table:", [each.indices.to_pylist() for each in table["label"].chunks])
print("iter_batches:", [each["label"].indices.to_pylist() for each in batches])
print("unified:", [each.indices.to_pylist() for each in table.unify_dictionaries()["label"].chunks])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
labels: ['cat', 'dog', 'bird', 'dog', 'bird', 'cat', 'bird', 'cat']
read_table: [[0, 1, 2], [0, 1, 2], [0, 1]]
iter_batches: [[0, 1, 2], [0, 1, 2], [0, 1]]
unified: [[0, 1, 2], [1, 2, 0], [2, 0]]
SEEN
