#!/usr/bin/env bash
# A perfect ranking has a mean average precision of 0. torchmetrics 1.9.0, torch 2.13.0, CPU.
# Guess: retrieval metrics look at the order of the scores, so that logits, log probabilities and negative distances will do.
# Seen: a hit whose score is not above 0 counts as a miss, in four of eight metrics. So RetrievalMAP, RetrievalMRR,
# RetrievalPrecision and RetrievalRecall fall as scores are moved down, while the others stay at 1. Each is 1 by sigmoid.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 torchmetrics==1.9.0
cat > "$folder/tried.py" <<'CODE'
import torch
from torchmetrics import retrieval

torch.manual_seed(0)
queries = torch.arange(50).repeat_interleave(10)
found = torch.zeros(500, dtype=torch.long)
found[::10] = 1
logits = torch.randn(500)
logits[::10] += 8  # the right one is always first
makers = {
    "RetrievalMAP": {}, "RetrievalMRR": {}, "RetrievalRecall": {"top_k": 1}, "RetrievalPrecision": {"top_k": 1},
    "RetrievalHitRate": {"top_k": 1}, "RetrievalNormalizedDCG": {}, "RetrievalRPrecision": {}, "RetrievalAUROC": {},
}
for name, options in makers.items():
    seen = []
    for scores in (logits, logits - 8, logits - 20, logits.sigmoid()):
        metric = getattr(retrieval, name)(**options)
        metric.update(scores, found, indexes=queries)
        seen.append(f"{metric.compute():.2f}")
    print(f"{name:<23} logits {seen[0]}, minus 8: {seen[1]}, minus 20: {seen[2]}, probabilities {seen[3]}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
RetrievalMAP            logits 1.00, minus 8: 0.50, minus 20: 0.00, probabilities 1.00
RetrievalMRR            logits 1.00, minus 8: 0.50, minus 20: 0.00, probabilities 1.00
RetrievalRecall         logits 1.00, minus 8: 0.50, minus 20: 0.00, probabilities 1.00
RetrievalPrecision      logits 1.00, minus 8: 0.50, minus 20: 0.00, probabilities 1.00
RetrievalHitRate        logits 1.00, minus 8: 1.00, minus 20: 1.00, probabilities 1.00
RetrievalNormalizedDCG  logits 1.00, minus 8: 1.00, minus 20: 1.00, probabilities 1.00
RetrievalRPrecision     logits 1.00, minus 8: 1.00, minus 20: 1.00, probabilities 1.00
RetrievalAUROC          logits 1.00, minus 8: 1.00, minus 20: 1.00, probabilities 1.00
SEEN
