#!/usr/bin/env bash
# The names of documents decide the score of a model that scores all alike. pytrec_eval-terrier 0.5.11.
# Guess: equal scores give what chance gives, or the last place, or keep the order of the run; names do not count.
# Seen: among equals, the greater name comes first, as texts are ordered: doc9 before doc10. A collapsed model has a reciprocal rank of
# 1 where the relevant document is the last by name, and 0.1 where it is the first, whatever the order of the run. Scores are compared
# in float32, so that 0.99999999 equals 1, and probabilities of a sure model are equal, where logits are not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet pytrec_eval-terrier==0.5.11
cat > "$folder/tried.py" <<'CODE'
import pytrec_eval

names = [f"doc{number}" for number in range(1, 11)]

def rank(relevant, scores, names=names):
    truth = {"query": {name: int(name == relevant) for name in names}}
    found = pytrec_eval.RelevanceEvaluator(truth, {"recip_rank"}).evaluate({"query": dict(zip(names, scores))})
    return round(1 / found["query"]["recip_rank"])

for relevant in ("doc1", "doc9", "doc10"):
    print(f"all alike: {relevant} has the rank {rank(relevant, [0.5] * 10)},", end=" ")
    print(f"and {rank(relevant, [0.5] * 10, names[::-1])} in a run in the opposite order")
for lead in (1e-6, 1e-8):
    print(f"doc1 is best by {lead}: rank {rank('doc1', [1.0] + [1.0 - lead] * 9)}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
all alike: doc1 has the rank 10, and 10 in a run in the opposite order
all alike: doc9 has the rank 1, and 1 in a run in the opposite order
all alike: doc10 has the rank 9, and 9 in a run in the opposite order
doc1 is best by 1e-06: rank 1
doc1 is best by 1e-08: rank 10
SEEN
