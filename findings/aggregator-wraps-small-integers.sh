#!/usr/bin/env bash
# Averages of equal patches are another value. torchio 1.2.1, torch 2.13.0.
# Guess: where patches overlap, GridAggregator(overlap_mode="average") gives the mean, so that of equal values is this
# value.
# Seen: it adds in the type of the patches: 200 of uint8, as labels or an 8-bit image have it, wraps around at 256. The
# output is float32, and "hann" gives 200.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 torchio==1.2.1
cat > "$folder/tried.py" <<'CODE'
import torch
import torchio

volume = torch.full((1, 6, 6, 6), 200.0)
subject = torchio.Subject(image=torchio.ScalarImage(tensor=volume))
for mode in ("hann", "average"):
    for dtype in (torch.float32, torch.uint8):
        sampler = torchio.GridSampler(subject, 4, 2)
        aggregator = torchio.GridAggregator(sampler, overlap_mode=mode)
        for patch in torch.utils.data.DataLoader(sampler, batch_size=4):
            aggregator.add_batch(patch["image"]["data"].to(dtype), patch[torchio.LOCATION])
        output = aggregator.get_output_tensor()
        print(mode, dtype, "->", output.dtype, sorted({round(value) for value in output.flatten().tolist()}))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
hann torch.float32 -> torch.float32 [200]
hann torch.uint8 -> torch.float32 [200]
average torch.float32 -> torch.float32 [200]
average torch.uint8 -> torch.float32 [8, 72, 200]
SEEN
