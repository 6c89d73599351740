#!/usr/bin/env bash
# In bfloat16, the positions 256 and 257 are turned alike, and above 512 four in a row. rotary-embedding-torch 0.9.1,
# torch 2.13.0, CPU.
# Guess: the library turns itself off from autocast and holds its frequencies in float32, so positions are exact, and the
# result is rounded once.
# Seen: positions are counted in the type of the queries. In bfloat16, which queries have under autocast as well, whole numbers
# above 256 are rounded to even ones, and above 512 to each fourth. A text of 1,000 words has 507 positions. Queries in float32
# have all.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet rotary-embedding-torch==0.9.1
cat > "$folder/tried.py" <<'CODE'
import torch
from rotary_embedding_torch import RotaryEmbedding

rotary = RotaryEmbedding(dim=64)
layer = torch.nn.Linear(64, 64)
print("its frequencies are of", rotary.freqs.dtype)
for name, precision in {"float32": None, "autocast to bfloat16": torch.bfloat16}.items():
    with torch.autocast("cpu", dtype=precision, enabled=precision is not None):
        queries = layer(torch.ones(1, 1, 1000, 64))
        turned = RotaryEmbedding(dim=64).rotate_queries_or_keys(queries)[0, 0]
    firsts = [n for n in range(1, 1000) if not torch.equal(turned[n], turned[n - 1])]
    around = [n for n in firsts if 508 < n < 525]
    print(f"{name}: {1 + len(firsts)} positions of 1000; those that differ from the one before, around 512: {around}")
with torch.autocast("cpu", dtype=torch.bfloat16):
    exact = RotaryEmbedding(dim=64).rotate_queries_or_keys(layer(torch.ones(1, 1, 1000, 64)).float())[0, 0]
print("queries.float():", len({tuple(each) for each in exact.tolist()}), "positions of 1000")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
its frequencies are of torch.float32
float32: 1000 positions of 1000; those that differ from the one before, around 512: [509, 510, 511, 512, 513, 514, 515, 516, 517, 518, 519, 520, 521, 522, 523, 524]
autocast to bfloat16: 507 positions of 1000; those that differ from the one before, around 512: [510, 511, 515, 518, 523]
queries.float(): 1000 positions of 1000
SEEN
