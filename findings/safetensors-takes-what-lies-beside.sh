#!/usr/bin/env bash
# Every second row of an array comes back as the first rows. safetensors 0.8.0, numpy 2.4.6.
# Guess: `safetensors.numpy.save` writes the values of an array, as `numpy.save` does, or refuses arrays that are not
# contiguous, as `safetensors.torch` does.
# Seen: it writes as many bytes as the array has from where it begins: of a slice with a step, the elements in between,
# and of an array in Fortran's order, as MATLAB's files, LAPACK and a transposed layout give it, another order.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet numpy==2.4.6 safetensors==0.8.0
cat > "$folder/tried.py" <<'CODE'
import numpy
from safetensors.numpy import load, save

rows = numpy.arange(12.0).reshape(6, 2)
arrays = {"every second": rows[::2], "columns first": numpy.asfortranarray(rows[:2]), "a column": rows[:, 1]}
found = load(save(arrays))
for name, array in arrays.items():
    print(name, array.tolist(), found[name].tolist())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
every second [[0.0, 1.0], [4.0, 5.0], [8.0, 9.0]] [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
columns first [[0.0, 1.0], [2.0, 3.0]] [[0.0, 2.0], [1.0, 3.0]]
a column [1.0, 3.0, 5.0, 7.0, 9.0, 11.0] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
SEEN
