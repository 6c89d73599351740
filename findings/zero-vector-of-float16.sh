#!/usr/bin/env bash
# A vector of zeros becomes NaN in float16. torch 2.13.0, CPU.
# Guess: F.normalize and F.cosine_similarity give 0 for a vector of zeros: that is what eps is for.
# Seen: eps of 1e-12 and 1e-8 are 0 in float16, so zeros are divided by zero. Padding, a masked row or a dead ReLU become
# NaN in a model of half precision; float32 and bfloat16 give 0. An eps of 1e-6 helps.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.nn import functional as F

for dtype in (torch.float32, torch.bfloat16, torch.float16):
    zeros, ones = torch.zeros(1, 3, dtype=dtype), torch.ones(1, 3, dtype=dtype)
    print(dtype, F.normalize(zeros)[0].tolist(), F.cosine_similarity(zeros, ones).item())
print("eps=1e-6", F.normalize(zeros, eps=1e-6)[0].tolist(), F.cosine_similarity(zeros, ones, eps=1e-6).item())
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
torch.float32 [0.0, 0.0, 0.0] 0.0
torch.bfloat16 [0.0, 0.0, 0.0] 0.0
torch.float16 [nan, nan, nan] nan
eps=1e-6 [0.0, 0.0, 0.0] 0.0
SEEN
