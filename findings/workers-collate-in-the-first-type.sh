#!/usr/bin/env bash
# Values wrap around because a worker loads them. torch 2.13.0, CPU.
# Guess: num_workers says who loads the samples, and nothing about the values of a batch.
# Seen: in the main process, tensors of different types become a batch of a type that holds all. In a worker the batch has the
# type of its first sample: behind one of uint8, a label of 300 is 44; behind one of float16, 100,000 is infinite. The order
# decides, so that a shuffle changes values.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.utils.data import DataLoader

def values(samples, workers):
    try:
        batch = next(iter(DataLoader(samples, batch_size=2, num_workers=workers)))
    except TypeError:
        return "an error"
    return f"{batch.flatten().tolist()} of {str(batch.dtype)[6:]}"

for first, second in (
    (torch.tensor([7], dtype=torch.uint8), torch.tensor([300])),
    (torch.tensor([300]), torch.tensor([7], dtype=torch.uint8)),
    (torch.tensor([7.0], dtype=torch.float16), torch.tensor([1e5])),
    (torch.tensor([0.5], dtype=torch.bfloat16), torch.tensor([257.0])),
    (torch.tensor([True]), torch.tensor([2])),
    (torch.tensor([7]), torch.tensor([2.5])),
):
    print(f"{str(first.dtype)[6:]} before {str(second.dtype)[6:]}: {values([first, second], 0)}, in a worker {values([first, second], 1)}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
uint8 before int64: [7, 300] of int64, in a worker [7, 44] of uint8
int64 before uint8: [300, 7] of int64, in a worker [300, 7] of int64
float16 before float32: [7.0, 100000.0] of float32, in a worker [7.0, inf] of float16
bfloat16 before float32: [0.5, 257.0] of float32, in a worker [0.5, 256.0] of bfloat16
bool before int64: [1, 2] of int64, in a worker an error
int64 before float32: [7.0, 2.5] of float32, in a worker an error
SEEN
