#!/usr/bin/env bash
# A value that does not fit becomes another one, and in each format a different one. h5py 3.16.0, zarr 3.1.6, numpy 2.4.6.
# Guess: what does not fit into the type of an array on disk is refused, warned of, or cast as numpy casts it, alike in
# both formats.
# Seen: h5py takes the nearest number that fits: 300 is 255 in a byte, and 70000 is 32767 in int16. zarr wraps around:
# 44 and 4464. Labels and masks that are written by the one and by the other differ, without a word.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet h5py==3.16.0 zarr==3.1.6 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import os
import sys

import h5py
import numpy
import zarr

os.chdir(sys.argv[1])
for kind, values in {"uint8": [3, 300, -1], "int16": [3, 70000, -40000]}.items():
    values = numpy.array(values)
    with h5py.File(f"{kind}.h5", "w") as file:
        column = file.create_dataset("values", (3,), dtype=kind)
        column[:] = values
        print(kind, "h5py", column[:].tolist())
    array = zarr.open(f"{kind}.zarr", mode="w", shape=(3,), dtype=kind, chunks=(3,))
    array[:] = values
    print(kind, "zarr", array[:].tolist())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
uint8 h5py [3, 255, 0]
uint8 zarr [3, 44, 255]
int16 h5py [3, 32767, -32768]
int16 zarr [3, 4464, 25536]
SEEN
