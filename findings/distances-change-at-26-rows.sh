#!/usr/bin/env bash
# The distance of two embeddings is another one in a batch of 26. torch 2.13.0, pytorch-metric-learning 2.9.0, CPU.
# Guess: cdist is the root of the summed squares for any number of rows, up to rounding in the last digit.
# Seen: from 26 rows on it is computed by a product of matrices, which cancels. Close rows are at several times their distance,
# or at 0 with no gradient. LpDistance, and so triplets and miners, do the same: near duplicates, the hard pairs, are noise.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 pytorch-metric-learning==2.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from pytorch_metric_learning.distances import LpDistance

torch.manual_seed(0)
rows = torch.randn(26, 16) + 10
for apart in (0.01, 0.001):
    rows[1] = rows[0]
    rows[1, 0] += apart
    for number in (25, 26):
        leaf = rows[:number].clone().requires_grad_()
        found = torch.cdist(leaf, leaf)[0, 1]
        found.backward()
        exact = torch.cdist(leaf, leaf, compute_mode="donot_use_mm_for_euclid_dist")[0, 1]
        others = LpDistance(normalize_embeddings=False)(rows[:number])[0, 1]
        print(f"{apart} apart, {number} rows: cdist {found:.4f}, LpDistance {others:.4f}", end=", ")
        print(f"gradient {leaf.grad[0].norm():.2f}, without a product {exact:.4f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
0.01 apart, 25 rows: cdist 0.0100, LpDistance 0.0100, gradient 1.00, without a product 0.0100
0.01 apart, 26 rows: cdist 0.0221, LpDistance 0.0221, gradient 0.45, without a product 0.0100
0.001 apart, 25 rows: cdist 0.0010, LpDistance 0.0010, gradient 1.00, without a product 0.0010
0.001 apart, 26 rows: cdist 0.0156, LpDistance 0.0156, gradient 0.06, without a product 0.0010
SEEN
