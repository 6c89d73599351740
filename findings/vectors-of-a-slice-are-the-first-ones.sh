#!/usr/bin/env bash
# The values of the last rows of a column of vectors are those of the first rows, or of the next ones. pyarrow 26.0.1, numpy 2.4.6.
# Guess: `column.values` of a slice are the values of its rows, so that to_numpy().reshape(-1, 2) gives its vectors.
# Seen: `values` of a list column are those of the whole array from which the slice was taken; batch 2 reads the vectors of
# batch 1. `flatten()` begins at the slice, and leaves out rows that are missing, so that all rows behind one move up.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet pyarrow==26.0.1 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import pyarrow

vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array([float(value) for value in range(8)]), 2)
table = pyarrow.table({"vector": vectors, "row": range(4)})
for batch in table.to_batches(max_chunksize=2):
    column = batch["vector"]
    print(
        f"rows {batch['row'].to_pylist()}: to_pylist {column.to_pylist()},",
        f"values {column.values.to_numpy().reshape(-1, 2)[:2].tolist()}, flatten {column.flatten().to_numpy().reshape(-1, 2).tolist()}",
    )
missing = pyarrow.array([[0.0, 1.0], None, [4.0, 5.0]], pyarrow.list_(pyarrow.float64(), 2))
print(f"row 1 of 3 is missing: flatten {missing.flatten().to_numpy().reshape(-1, 2).tolist()}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
rows [0, 1]: to_pylist [[0.0, 1.0], [2.0, 3.0]], values [[0.0, 1.0], [2.0, 3.0]], flatten [[0.0, 1.0], [2.0, 3.0]]
rows [2, 3]: to_pylist [[4.0, 5.0], [6.0, 7.0]], values [[0.0, 1.0], [2.0, 3.0]], flatten [[4.0, 5.0], [6.0, 7.0]]
row 1 of 3 is missing: flatten [[0.0, 1.0], [4.0, 5.0]]
SEEN
