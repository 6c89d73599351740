#!/usr/bin/env bash
# A first score of NaN is never replaced by a better one. pytorch-ignite 0.5.5, Checkpoint.
# Guess: NaN is the worst score there is.
# Seen: with n_saved=1 the checkpoint of the first epoch, whose score is NaN, stays, and those of the better
# epochs are not saved.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.13.0 pytorch-ignite==0.5.5
cat > "$folder/tried.py" <<'CODE'
import os
import tempfile
import torch
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver

folder, scores = tempfile.mkdtemp(), iter([float("nan"), 0.5, 0.9])
saved = Checkpoint(
    {"model": torch.nn.Linear(1, 1)},
    DiskSaver(folder, require_empty=False),
    n_saved=1,
    score_function=lambda engine: next(scores),
    score_name="score",
)
engine = Engine(lambda engine, batch: None)
engine.add_event_handler(Events.EPOCH_COMPLETED, saved)
engine.run([0], max_epochs=3)
print(os.listdir(folder))
CODE
PYTHONWARNINGS=ignore "$folder/env/bin/python" "$folder/tried.py" 2> "$folder/errors" > "$folder/seen" || { cat "$folder/errors"; exit 1; }
diff - "$folder/seen" <<'SEEN' && echo "$(basename "$0"): as stated"
['model_score=nan.pt']
SEEN
