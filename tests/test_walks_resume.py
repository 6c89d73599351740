"""How much of the package a resume passes through: its files, and calls of their functions.

A bound that rises means that the path has become longer, or that there are two where one was.
"""

import sys
from collections import Counter
from pathlib import Path

import torch

import camshaft
from camshaft import supervised
from camshaft.handlers import Checkpoint

ROOT = Path(camshaft.__file__).parent
BATCH = torch.zeros(3, 4), torch.zeros(3, 2)


CALLS = Counter()
"""The calls of functions under `engine/` and `handlers/` in the last load, by file."""


class Walked(Checkpoint):
    """Counts its load."""

    def load(self, state):
        CALLS.clear()
        sys.setprofile(note)
        try:
            return super().load(state)
        finally:
            sys.setprofile(None)


def note(frame, event, _):
    if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
        file = Path(frame.f_code.co_filename).relative_to(ROOT)
        if file.parts[0] in ("engine", "handlers"):
            CALLS[file.as_posix()] += 1


def test_a_resume_of_one_process(tmp_path):
    for epochs in (1, 2):
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.AdamW(model.parameters())
        engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
        engine.add(Walked(tmp_path, resume=True, background=False))
        engine.run([BATCH] * 2, max_epochs=epochs)
    own = [file for file in CALLS if file.startswith("handlers/checkpoint")]
    assert len(own) <= 21, sorted(own)
    assert len(CALLS) <= 40, sorted(CALLS)
    assert CALLS.total() <= 2_200, CALLS.most_common(9)
