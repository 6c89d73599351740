#!/usr/bin/env bash
# `iter` of an iterator that is under way begins it again. lhotse 1.33.0, torch 2.13.0.
# Guess: `iter(iterator)` gives the iterator as it is, so that `list` or `for` take what is left.
# Seen: its samplers are their own iterators, and `iter` resets them: a `for` over one that has given its first batch
# gives all batches, the first again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0
"$folder/env/bin/pip" install --quiet lhotse==1.33.0 urllib3
cat > "$folder/tried.py" <<'CODE'
from lhotse import CutSet, MonoCut
from lhotse.dataset import SimpleCutSampler

cuts = CutSet.from_cuts(MonoCut(id=f"{n}", start=0, duration=1.0, channel=0) for n in range(8))
iterator = iter(SimpleCutSampler(cuts, max_cuts=2))
print("first:", [cut.id for cut in next(iterator)])
print("rest:", [[cut.id for cut in batch] for batch in iterator])
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
first: ['0', '1']
rest: [['0', '1'], ['2', '3'], ['4', '5'], ['6', '7']]
SEEN
