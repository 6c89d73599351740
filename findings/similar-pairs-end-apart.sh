#!/usr/bin/env bash
# Pairs that are trained to be alike end less alike than the others. sentence-transformers 6.2.0, torch 2.13.0, CPU.
# Guess: AnglELoss is CoSENTLoss with another measure of likeness, one that is greatest for equal embeddings; behind it, pairs with the
# label 1 have a greater cosine than pairs with the label 0, or at least a greater pairwise_angle_sim by their direction.
# Seen: its measure is 1 for equal embeddings, 1 for opposite ones, and 1.41 for one that is turned by 45 degrees in one direction, 0
# in the other. A loss near 0 says nothing about cosines, by which embeddings are then compared. Beside it, CoSENTLoss or
# CosineSimilarityLoss brings them apart.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet transformers==5.23.0 sentence-transformers==6.2.0
cat > "$folder/tried.py" <<'CODE'
import math

import torch
from sentence_transformers import losses, util

class Embeddings(torch.nn.Module):
    def __init__(self, pairs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, pairs, 32))

    def forward(self, features):
        return {"sentence_embedding": self.weight[features["side"]]}

def turned(embedding, degrees):
    real, imaginary = embedding.chunk(2, dim=1)
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return torch.cat([real * cosine - imaginary * sine, real * sine + imaginary * cosine], dim=1)

torch.manual_seed(0)
one = torch.randn(1, 32)
for degrees in (0, 45, -45, 180):
    other = turned(one, degrees)
    print(f"turned by {degrees}: angle {abs(util.pairwise_angle_sim(one, other).item()):.2f}", end=", ")
    print(f"cosine {util.pairwise_cos_sim(one, other).item():.2f}")
labels = torch.tensor([1.0, 0.0]).repeat(20)
for name in ("CoSENTLoss", "AnglELoss"):
    torch.manual_seed(0)
    model = Embeddings(len(labels))
    loss_of = getattr(losses, name)(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(500):
        optimizer.zero_grad()
        loss = loss_of([{"side": 0}, {"side": 1}], labels)
        loss.backward()
        optimizer.step()
    cosines = util.pairwise_cos_sim(*model.weight.detach())
    print(f"{name} trained to {loss.item():.1f}: cosines of label 1 {cosines[::2].mean().item():.1f}", end=", ")
    print(f"of label 0 {cosines[1::2].mean().item():.1f}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
turned by 0: angle 1.00, cosine 1.00
turned by 45: angle 0.00, cosine 0.71
turned by -45: angle 1.41, cosine 0.71
turned by 180: angle 1.00, cosine -1.00
CoSENTLoss trained to 0.0: cosines of label 1 0.5, of label 0 -0.6
AnglELoss trained to 0.0: cosines of label 1 -0.1, of label 0 -0.1
SEEN
