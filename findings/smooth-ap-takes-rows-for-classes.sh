#!/usr/bin/env bash
# A loss takes rows that follow each other for a class. pytorch-metric-learning 2.9.0, torch 2.13.0, CPU.
# Guess: SmoothAPLoss is 0 where the embeddings of each label are alike and others differ, and draws those of a label together.
# Seen: the labels count for the number of classes alone, and that is taken for the number of rows of each: 8 classes of 2 rows
# are read as 2 classes of 8. Perfect embeddings have a loss, and a training that brings it to 0 puts other labels together.
# It is right where there are as many classes as rows of each, in the order of the labels.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet pytorch-metric-learning==2.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from pytorch_metric_learning.losses import SmoothAPLoss
from torch.nn.functional import normalize, one_hot

loss = SmoothAPLoss()

def nearest_has_the_label(embeddings, labels):
    near = normalize(embeddings, dim=1) @ normalize(embeddings, dim=1).t()
    return (labels[near.fill_diagonal_(-2).argmax(1)] == labels).float().mean().item()

for classes, each in ((4, 4), (8, 2), (8, 4)):
    torch.manual_seed(0)
    labels = torch.arange(classes).repeat_interleave(each)
    perfect = one_hot(labels, 16).float()
    order = torch.randperm(len(labels))
    print(f"{classes} classes of {each} rows: loss of perfect embeddings {abs(loss(perfect, labels).item()):.1f}", end=", ")
    print(f"in another order {loss(perfect[order], labels[order]).item():.1f}", end=", ")
    trained = torch.randn(len(labels), 16, requires_grad=True)
    optimizer = torch.optim.Adam([trained], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        loss(trained, labels).backward()
        optimizer.step()
    print(f"trained to {abs(loss(trained, labels).item()):.1f}", end=", ")
    print(f"nearest row has the label in {nearest_has_the_label(trained.detach(), labels):.1f} of all")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
4 classes of 4 rows: loss of perfect embeddings 0.0, in another order 0.6, trained to 0.0, nearest row has the label in 1.0 of all
8 classes of 2 rows: loss of perfect embeddings 0.3, in another order 0.4, trained to 0.0, nearest row has the label in 0.2 of all
8 classes of 4 rows: loss of perfect embeddings 0.3, in another order 0.6, trained to 0.0, nearest row has the label in 0.6 of all
SEEN
