#!/usr/bin/env bash
# Labels that are saved come back as other labels. nibabel 5.4.2.
# Guess: whole numbers below 256 in an image whose header says uint8 are stored as they are.
# Seen: if the array is of floats, as after a resampling, they are stretched over all numbers of the type, with a slope
# in the file: 1 comes back as 0.988, and astype(int), as labels are made, takes 0. An array of uint8 with the same
# header is kept.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet numpy==2.4.6 nibabel==5.4.2
cat > "$folder/tried.py" <<'CODE'
import sys

import nibabel
import numpy

labels = numpy.arange(8).reshape(2, 2, 2)
header = nibabel.Nifti1Header()
header.set_data_dtype("uint8")
for dtype in ("uint8", "float32"):
    nibabel.save(nibabel.Nifti1Image(labels.astype(dtype), numpy.eye(4), header), f"{sys.argv[1]}/labels.nii")
    read = nibabel.load(f"{sys.argv[1]}/labels.nii").get_fdata()
    print(dtype, read.ravel().round(4).tolist(), "->", read.astype(int).ravel().tolist())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
uint8 [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0] -> [0, 1, 2, 3, 4, 5, 6, 7]
float32 [0.0, 0.9882, 2.0039, 2.9922, 4.0078, 4.9961, 6.0118, 7.0] -> [0, 0, 2, 2, 4, 4, 6, 7]
SEEN
