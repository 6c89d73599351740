#!/usr/bin/env bash
# A compiled margin loss takes each -1 for the class 0. torch 2.13.0, CPU.
# Guess: a compiled MultiLabelMarginLoss is the loss itself, up to rounding.
# Seen: a row of its targets ends at the first -1. Compiled, or exported and decomposed, the rest of the row counts as class 0,
# once for each place: with ten classes and one label, class 0 is raised nine times as much as the label. The other margin losses
# of several classes or labels are right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
import torch.nn.functional as F

def by_hand(scores, targets, padding):
    total = 0.0
    for row, labels in zip(scores, targets.tolist()):
        labels = labels[: labels.index(-1)] if -1 in labels else labels
        counted = labels + [0] * (len(row) - len(labels)) if padding else labels
        others = [index for index in range(len(row)) if index not in labels]
        total += sum(max(0.0, (1 - row[label] + row[other]).item()) for label in counted for other in others) / len(row)
    return total / len(scores)

class Loss(torch.nn.Module):
    def forward(self, scores, targets):
        return F.multilabel_margin_loss(scores, targets)

torch.manual_seed(0)
scores = torch.randn(4, 10)
targets = torch.full((4, 10), -1)
targets[:, 0] = torch.tensor([1, 4, 7, 9])
targets[0, 1] = 3
exported = torch.export.export(Loss(), (scores, targets)).run_decompositions().module()
for name, loss in (("eager", Loss()), ("compiled", torch.compile(Loss())), ("exported and decomposed", exported)):
    leaf = scores.clone().requires_grad_()
    found = loss(leaf, targets)
    found.backward()
    kind = [word for word, padding in (("labels", False), ("labels and padding", True)) if abs(by_hand(scores, targets, padding) - found) < 1e-4]
    print(f"{name}: {found.item():.2f}, the sum over {kind[0]}, gradient of class 0 {leaf.grad[:, 0].sum().item():.2f}")
for name in ("multi_margin_loss", "multilabel_soft_margin_loss"):
    function, labels = getattr(F, name), targets[:, 0] if name == "multi_margin_loss" else (targets >= 0).float()
    print(f"{name}: the same compiled:", torch.allclose(function(scores, labels), torch.compile(function)(scores, labels)))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
eager: 0.83, the sum over labels, gradient of class 0 0.12
compiled: 7.05, the sum over labels and padding, gradient of class 0 -4.65
exported and decomposed: 7.05, the sum over labels and padding, gradient of class 0 -4.65
multi_margin_loss: the same compiled: True
multilabel_soft_margin_loss: the same compiled: True
SEEN
