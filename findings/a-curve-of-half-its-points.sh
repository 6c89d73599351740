#!/usr/bin/env bash
# A curve that is read back lacks its best point and its first one. tensorboard 2.21.0, torch 2.13.0.
# Guess: EventAccumulator gives the points that SummaryWriter wrote, as the files hold them.
# Seen: of more than 10,000 points, it keeps 10,000 that it draws at random, and the last one: no first, no smallest, no even
# distances. A table or a choice of the best step that is made from it misses them. size_guidance={"scalars": 0} reads all.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/env/bin/pip" install --quiet tensorboard==2.21.0 setuptools==80.9.0
cat > "$folder/tried.py" <<'CODE'
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

with SummaryWriter(sys.argv[1]) as writer:
    for step in range(30_000):
        writer.add_scalar("loss", abs(step - 12_345), step)
for name, options in (("by default", {}), ("with 0", {"size_guidance": {"scalars": 0}})):
    read = EventAccumulator(sys.argv[1], **options).Reload().Scalars("loss")
    best = min(read, key=lambda each: each.value)
    print(f"{name}: {len(read)} points from {read[0].step} to {read[-1].step}, the best at {best.step}")
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" "$folder" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
by default: 10000 points from 2 to 29999, the best at 12344
with 0: 30000 points from 0 to 29999, the best at 12345
SEEN
