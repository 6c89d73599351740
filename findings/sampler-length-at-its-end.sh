#!/usr/bin/env bash
# A data set that shrinks during a pass gives samples twice. torch 2.13.0.
# Guess: a RandomSampler draws its order once and stops at its end, or fails.
# Seen: at the end of its permutation it asks for the length again, and fills up to a multiple of it: with a
# data set that has shrunk from 8 to 4 during the pass, four samples come twice.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.utils.data import RandomSampler

class Shrinking:
    length = 8
    def __len__(self):
        return self.length

data, seen = Shrinking(), []
for index in RandomSampler(data):
    seen.append(index)
    if len(seen) == 4:
        data.length = 4
print(len(seen), "samples,", len(set(seen)), "different ones")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
12 samples, 8 different ones
SEEN
