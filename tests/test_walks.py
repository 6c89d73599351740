"""How much of the package one act passes through: its files, and calls of their functions.

A bound that rises means that one path has become longer, or that there are two where one was.
"""

import json
import sys
import threading
from collections import Counter
from pathlib import Path

import torch

import camshaft
from camshaft import Events, supervised
from camshaft.handlers import Checkpoint

ROOT = Path(camshaft.__file__).parent
BATCH = torch.zeros(3, 4), torch.zeros(3, 2)


class Walk:
    """Counts the calls of functions under `engine/` and `handlers/`, by file, in a `with` block."""

    def __init__(self):
        self.calls = Counter()

    def __enter__(self):
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            file = Path(frame.f_code.co_filename).relative_to(ROOT)
            if file.parts[0] in ("engine", "handlers"):
                self.calls[file.as_posix()] += 1


def second_save(directory, engine):
    """The walk of a run's second save, on the thread that trains."""

    class Walked(Checkpoint):
        def save(self, state):
            if state.iteration != 2:
                return super().save(state)
            with walk:
                return super().save(state)

    walk = Walk()
    engine.add(Walked(directory, when=Events.ITERATION_COMPLETED, background=False))
    engine.run([BATCH] * 2, max_epochs=1)
    return walk.calls


def test_a_save_of_one_process(tmp_path):
    model = torch.nn.Linear(4, 2)
    engine = supervised(model, torch.optim.AdamW(model.parameters()), torch.nn.functional.mse_loss)
    calls = second_save(tmp_path, engine)
    assert len(calls) <= 45, sorted(calls)
    assert calls.total() <= 2_200, calls.most_common(9)


RANKS = """
import json, sys
sys.path.insert(0, sys.argv[2])
import torch
from torch.distributed.fsdp import fully_shard
from camshaft import ranks, supervised
from test_walks import second_save

with ranks.process_group("gloo"):
    model = torch.nn.Linear(4, 2)
    fully_shard(model)
    engine = supervised(model, torch.optim.AdamW(model.parameters()), torch.nn.functional.mse_loss)
    print(json.dumps(second_save(sys.argv[1], engine)))
"""


def test_a_save_of_two_ranks(processes, tmp_path):
    first, second = processes.run_ranks(2, RANKS, tmp_path / "run", Path(__file__).parent)
    for each in (first, second):
        calls = Counter(json.loads(each.stdout))
        assert len(calls) <= 60, sorted(calls)
        assert calls.total() <= 2_600, calls.most_common(9)
