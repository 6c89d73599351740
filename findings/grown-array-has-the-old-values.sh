#!/usr/bin/env bash
# Rows that were cut off come back when an array grows again. zarr 3.1.6, tensorstore 0.1.86, h5py 3.16.0.
# Guess: resize to 5 rows drops the others, and rows that are added later hold the fill value, as in HDF5.
# Seen: what lies in the last chunk stays in the file: of 10 rows in chunks of 4, rows 5 to 7 are back, and 8 and 9 are
# zeros.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet numpy==2.4.6 zarr==3.1.6 tensorstore==0.1.86 h5py==3.16.0
cat > "$folder/tried.py" <<'CODE'
import sys

import h5py
import numpy
import tensorstore
import zarr

values = numpy.arange(1, 11, dtype="f4")
array = zarr.create_array({}, shape=(10,), chunks=(4,), dtype="f4")
array[:] = values
array.resize((5,))
array.resize((10,))
print("zarr", array[:].tolist())
layout = tensorstore.ChunkLayout(chunk_shape=[4])
spec = {"driver": "zarr3", "kvstore": "memory://"}
store = tensorstore.open(spec, dtype=tensorstore.float32, shape=[10], chunk_layout=layout, create=True).result()
store[:] = values
for size in (5, 10):
    store = store.resize(exclusive_max=[size]).result()
print("tensorstore", store.read().result().tolist())
with h5py.File(f"{sys.argv[1]}/x.h5", "w") as file:
    rows = file.create_dataset("rows", data=values, maxshape=(None,), chunks=(4,))
    rows.resize((5,))
    rows.resize((10,))
    print("h5py", rows[:].tolist())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
zarr [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.0, 0.0]
tensorstore [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.0, 0.0]
h5py [1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0]
SEEN
