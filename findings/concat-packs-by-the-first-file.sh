#!/usr/bin/env bash
# What two files hold comes back as other numbers from one. xarray 2026.9.0, netCDF4 1.7.4.
# Guess: values that were read from two packed files, joined and written, are read as they were, up to rounding.
# Seen: the join keeps the packing of the first file, scale, offset and int16, and values that do not fit wrap around:
# pressures of 100,000 come back as some hundreds. Nothing warns. `.drop_encoding()` before the write keeps them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet numpy==2.4.6 xarray==2026.9.0 netCDF4==1.7.4
cat > "$folder/tried.py" <<'CODE'
import sys

import xarray

for name, values, scale in (("a", [500.0, 510.0], 0.01), ("b", [100000.0, 101325.0], 10.0)):
    table = xarray.Dataset({"p": ("n", values)})
    table.to_netcdf(f"{sys.argv[1]}/{name}.nc", encoding={"p": {"dtype": "int16", "scale_factor": scale, "add_offset": values[0]}})
joined = xarray.concat([xarray.open_dataset(f"{sys.argv[1]}/{name}.nc") for name in "ab"], "n")
print("joined:", joined["p"].values.round(2).tolist())
joined.to_netcdf(f"{sys.argv[1]}/joined.nc")
print("written and read:", xarray.open_dataset(f"{sys.argv[1]}/joined.nc")["p"].values.round(2).tolist())
joined.drop_encoding().to_netcdf(f"{sys.argv[1]}/plain.nc")
print("without the packing:", xarray.open_dataset(f"{sys.argv[1]}/plain.nc")["p"].values.round(2).tolist())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
joined: [500.0, 510.0, 100000.0, 101320.0]
written and read: [500.0, 510.0, 385.28, 394.56]
without the packing: [500.0, 510.0, 100000.0, 101320.0]
SEEN
