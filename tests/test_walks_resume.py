"""How much of the package a resume passes through: its files, and calls of their functions.

A bound that rises means that the path has become longer, or that there are two where one was.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import torch

import camshaft
from camshaft import supervised
from camshaft.handlers import Checkpoint

ROOT = Path(camshaft.__file__).parent
BATCH = torch.zeros(3, 4), torch.zeros(3, 2)


class Walked(Checkpoint):
    """Counts the calls of functions under `engine/` and `handlers/` in its last load, by file."""

    def load(self, state, depot):
        CALLS.clear()
        sys.setprofile(note)
        try:
            return super().load(state, depot)
        finally:
            sys.setprofile(None)


CALLS = Counter()


def note(frame, event, _):
    if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
        file = Path(frame.f_code.co_filename).relative_to(ROOT)
        if file.parts[0] in ("engine", "handlers"):
            CALLS[file.as_posix()] += 1


def walk(directory):
    """The walk of a resume, after a run has saved and a first resume has imported what it needs."""
    for epochs in (1, 2, 3):
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.AdamW(model.parameters())
        engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
        engine.add(Walked(directory, resume=True, background=False))
        engine.run([BATCH] * 2, max_epochs=epochs)
    return CALLS


ALONE = """
import json, sys
sys.path.insert(0, sys.argv[2])
from test_walks_resume import walk

print(json.dumps(walk(sys.argv[1])))
"""


def test_a_resume_of_one_process(processes, tmp_path):
    result = processes.run(ALONE, tmp_path / "run", Path(__file__).parent)
    calls = Counter(json.loads(result.stdout))
    own = [file for file in calls if file.startswith("handlers/checkpoint")]
    assert len(own) <= 15, sorted(own)
    assert len(calls) <= 28, sorted(calls)
    assert calls.total() <= 1_380, calls.most_common(9)
