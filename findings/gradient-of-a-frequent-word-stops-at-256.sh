#!/usr/bin/env bash
# The gradient of a frequent word stops growing. torch 2.13.0, CPU.
# Guess: in bfloat16, the gradient of an embedding is rounded as a sum is, to three digits.
# Seen: sum, expand, gather, index_select and scatter_add add up in float32. nn.Embedding, EmbeddingBag, indexing with [] and
# index_add add one after the other in the type itself: of 5,000 gradients of 1, 256 are left, and 2,048 in float16.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch import nn

words = torch.zeros(5000, dtype=torch.long)

def embedding(dtype, **options):
    table = nn.Embedding(2, 1, dtype=dtype, **options)
    table(words).sum().backward()
    return table.weight.grad.to_dense()[0]

def bag(dtype):
    table = nn.EmbeddingBag(2, 1, mode="sum", dtype=dtype)
    table(words[:, None]).sum().backward()
    return table.weight.grad[0]

def of(take):
    def gradient(dtype):
        table = torch.zeros(2, 1, dtype=dtype, requires_grad=True)
        take(table).sum().backward()
        return table.grad[0]
    return gradient

for name, gradient in {
    "nn.Embedding": embedding,
    "nn.Embedding(sparse=True)": lambda dtype: embedding(dtype, sparse=True),
    "nn.EmbeddingBag": bag,
    "table[words]": of(lambda table: table[words]),
    "index_add": lambda dtype: torch.zeros(1, dtype=dtype).index_add(0, words, torch.ones(5000, dtype=dtype)),
    "index_select": of(lambda table: table.index_select(0, words)),
    "gather": of(lambda table: table.gather(0, words[:, None])),
    "scatter_add": lambda dtype: torch.zeros(1, dtype=dtype).scatter_add(0, words, torch.ones(5000, dtype=dtype)),
    "expand": of(lambda table: table[:1].expand(5000, 1)),
    "sum": lambda dtype: torch.ones(5000, dtype=dtype).sum(),
}.items():
    found = [f"{gradient(dtype).item():.0f} in {str(dtype)[6:]}" for dtype in (torch.float32, torch.bfloat16, torch.float16)]
    print(f"{name}: {', '.join(found)}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
nn.Embedding: 5000 in float32, 256 in bfloat16, 2048 in float16
nn.Embedding(sparse=True): 5000 in float32, 256 in bfloat16, 2048 in float16
nn.EmbeddingBag: 5000 in float32, 256 in bfloat16, 2048 in float16
table[words]: 5000 in float32, 256 in bfloat16, 2048 in float16
index_add: 5000 in float32, 256 in bfloat16, 2048 in float16
index_select: 5000 in float32, 4992 in bfloat16, 5000 in float16
gather: 5000 in float32, 4992 in bfloat16, 5000 in float16
scatter_add: 5000 in float32, 4992 in bfloat16, 5000 in float16
expand: 5000 in float32, 4992 in bfloat16, 5000 in float16
sum: 5000 in float32, 4992 in bfloat16, 5000 in float16
SEEN
