#!/usr/bin/env bash
# The margin losses of a model that says NaN are 0, and so are their gradients. torch 2.13.0, CPU.
# Guess: a loss of NaN is NaN, as for all other losses, so that a guard against NaN sees a model that has diverged.
# Seen: MultiMarginLoss and MultiLabelMarginLoss are exactly 0 for scores that are all NaN, the best loss that there is, with
# a gradient of 0. In a batch, a sample of NaN counts as a perfect one. Compiled, MultiMarginLoss is NaN.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cat > "$folder/tried.py" <<'CODE'
import torch
from torch.nn import functional

classes = torch.tensor([0, 1])
labels = torch.tensor([[0, 2, -1], [1, -1, -1]])
signs = torch.ones(2, 3)


def compiled(scores):
    return torch.compile(functional.multi_margin_loss)(scores, classes)


for name, loss in {
    "cross_entropy": lambda scores: functional.cross_entropy(scores, classes),
    "hinge_embedding_loss": lambda scores: functional.hinge_embedding_loss(scores, -signs),
    "multi_margin_loss": lambda scores: functional.multi_margin_loss(scores, classes),
    "multi_margin_loss, compiled": compiled,
    "multilabel_margin_loss": lambda scores: functional.multilabel_margin_loss(scores, labels),
}.items():
    scores = torch.full((2, 3), torch.nan, requires_grad=True)
    value = loss(scores)
    value.backward()
    print(f"{name}: {value.item():.1f}, with gradients of {sorted({str(each) for each in scores.grad.flatten().tolist()})}")
half = torch.tensor([[0.0, 0.0, 0.0], [torch.nan] * 3])
print("a sample of equal scores:", round(functional.multi_margin_loss(half[:1], classes[:1]).item(), 4))
print("beside one of NaN:", round(functional.multi_margin_loss(half, classes).item(), 4))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
cross_entropy: nan, with gradients of ['nan']
hinge_embedding_loss: nan, with gradients of ['0.0']
multi_margin_loss: 0.0, with gradients of ['0.0']
multi_margin_loss, compiled: nan, with gradients of ['0.0']
multilabel_margin_loss: 0.0, with gradients of ['0.0']
a sample of equal scores: 0.6667
beside one of NaN: 0.3333
SEEN
