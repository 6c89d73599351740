#!/usr/bin/env bash
# Missing values become -32767 degrees. netCDF4 1.7.4, torch 2.13.0.
# Guess: a variable with _FillValue and a scale gives NaN where it has no value, or torch refuses a masked array.
# Seen: netCDF4 gives a masked array, and from_numpy, as_tensor and a DataLoader take what is behind the mask: the fill
# value as it lies in the file, without the scale that all other values have got. `.filled(numpy.nan)` gives NaN.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 netCDF4==1.7.4
cat > "$folder/tried.py" <<'CODE'
import sys

import netCDF4
import numpy
import torch
from torch.utils.data import DataLoader

with netCDF4.Dataset(f"{sys.argv[1]}/x.nc", "w") as file:
    file.createDimension("time", 4)
    kelvin = file.createVariable("kelvin", "i2", ("time",), fill_value=-32767)
    kelvin.scale_factor, kelvin.add_offset = 0.01, 280.0
    kelvin[:] = numpy.ma.masked_array([270.0, 280.0, 290.0, 300.0], mask=[0, 1, 0, 0])
with netCDF4.Dataset(f"{sys.argv[1]}/x.nc") as file:
    values = file["kelvin"][:]
print("netCDF4:", values.tolist())
print("from_numpy:", torch.from_numpy(values).tolist())
print("a loader of rows:", next(iter(DataLoader([values], 1))).tolist())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
netCDF4: [270.0, None, 290.0, 300.0]
from_numpy: [270.0, -32767.0, 290.0, 300.0]
a loader of rows: [[270.0, -32767.0, 290.0, 300.0]]
SEEN
