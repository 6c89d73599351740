#!/usr/bin/env bash
# A model that scores everything the same has a perfect reciprocal rank. torcheval 0.0.7, torch 2.13.0, CPU.
# Guess: equal scores give what chance gives, or the last place; a collapsed model is seen at once.
# Seen: the rank is the number of greater scores, so that among equals the right one is first. ReciprocalRank, HitRate and
# MulticlassAccuracy(k=5) are 1 for constant scores, and for NaN. MulticlassAccuracy(k=1) is what chance gives.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 torcheval==0.0.7
cat > "$folder/tried.py" <<'CODE'
import torch
from torcheval.metrics import HitRate, MulticlassAccuracy, ReciprocalRank

torch.manual_seed(0)
right = torch.randint(0, 1000, (200,))
scores = {"drawn": torch.randn(200, 1000), "constant": torch.zeros(200, 1000), "NaN": torch.full((200, 1000), torch.nan)}
for name, each in scores.items():
    seen = []
    for metric in (ReciprocalRank(), HitRate(k=5), MulticlassAccuracy(k=5), MulticlassAccuracy()):
        metric.update(each, right)
        seen.append(f"{type(metric).__name__} {metric.compute().mean():.3f}")
    print(f"{name}:", ", ".join(seen))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
drawn: ReciprocalRank 0.005, HitRate 0.005, MulticlassAccuracy 0.005, MulticlassAccuracy 0.000
constant: ReciprocalRank 1.000, HitRate 1.000, MulticlassAccuracy 1.000, MulticlassAccuracy 0.000
NaN: ReciprocalRank 1.000, HitRate 1.000, MulticlassAccuracy 1.000, MulticlassAccuracy 0.000
SEEN
