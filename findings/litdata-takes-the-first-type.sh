#!/usr/bin/env bash
# Numbers of another width come back as other numbers. litdata 0.2.76, torch 2.13.0.
# Guess: a sample has the tensor that `optimize` was given, or another type than in the first sample is refused.
# Seen: a tensor of one dimension is written as its bytes, and read with the type of the first sample. int32 behind
# int64 gives half as many numbers, which are huge; float64 behind float32 gives twice as many. With two dimensions each
# has its own type.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 litdata==0.2.76
cat > "$folder/tried.py" <<'CODE'
import sys

import torch
from litdata import StreamingDataset, optimize


def tokens(number):
    return torch.arange(4, dtype=torch.int64 if number < 2 else torch.int32)


def matrix(number):
    return tokens(number)[None]


if __name__ == "__main__":
    for make in (tokens, matrix):
        optimize(make, list(range(4)), output_dir=f"{sys.argv[1]}/{make.__name__}", chunk_bytes="1MB", num_workers=1)
        given = [each.tolist() for each in StreamingDataset(f"{sys.argv[1]}/{make.__name__}")]
        with open(f"{sys.argv[1]}/seen", "a") as file:  # workers print much
            print(make.__name__, given[1], given[2], file=file)
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" > "$folder/errors" 2>&1 || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
tokens [0, 1, 2, 3] [4294967296, 12884901890]
matrix [[0, 1, 2, 3]] [[0, 1, 2, 3]]
SEEN
