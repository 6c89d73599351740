"""How much of the package one act passes through: its files, and calls of their functions.

A bound that rises means that one path has become longer, or that there are two where one was.
"""

import json
import sys
import threading
from collections import Counter
from pathlib import Path
from queue import SimpleQueue

import pytest
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
        self._files = SimpleQueue()  # of no kind that a run notes

    def __enter__(self):
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        threading.setprofile(None)
        self.calls.update(self._files.get() for _ in range(self._files.qsize()))

    def _note(self, frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            file = Path(frame.f_code.co_filename).relative_to(ROOT)
            # A name's first import is no part of the walk.
            if file.parts[0] in ("engine", "handlers") and file.name != "late.py":
                self._files.put(file.as_posix())


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


def engine_of(model):
    optimizer = torch.optim.AdamW(model.parameters())
    return supervised(model, optimizer, torch.nn.functional.mse_loss)


ALONE = """
import json, sys
sys.path.insert(0, sys.argv[2])
import torch
from test_walks import engine_of, second_save

def imported():
    return {name for name in sys.modules if name.startswith("torch.distributed")}

engine = engine_of(torch.nn.Linear(4, 2))
before = imported()
calls = second_save(sys.argv[1], engine)
assert imported() == before  # one process has nobody to send to
print(json.dumps(calls))
"""
RANKS = """
import json, sys
sys.path.insert(0, sys.argv[2])
import torch
from torch.distributed.fsdp import fully_shard
from camshaft import ranks
from test_walks import engine_of, second_save

with ranks.process_group("gloo"):
    model = torch.nn.Linear(4, 2)
    fully_shard(model)
    print(json.dumps(second_save(sys.argv[1], engine_of(model))))
"""


START = """
import json, sys
sys.path.insert(0, sys.argv[2])
import torch
from camshaft.handlers import Checkpoint
from test_walks import BATCH, Walk, engine_of

engine = engine_of(torch.nn.Linear(4, 2))
engine.add(*[Checkpoint(sys.argv[1])] * int(sys.argv[3]))
with Walk() as walk:
    engine.run([BATCH], max_epochs=1)
print(json.dumps(walk.calls))
"""


@pytest.mark.parametrize(("handlers", "files", "calls"), [(0, 54, 1_000), (1, 91, 3_545)])
def test_a_start_and_a_batch(processes, tmp_path, handlers, files, calls):
    done = processes.run(START, tmp_path / "run", Path(__file__).parent, handlers)
    check(done, files, calls)


def test_a_save_of_one_process(processes, tmp_path):
    done = processes.run(ALONE, tmp_path / "run", Path(__file__).parent)
    check(done, files=30, calls=1_145)


def test_a_save_of_two_ranks(processes, tmp_path):
    for done in processes.run_ranks(2, RANKS, tmp_path / "run", Path(__file__).parent):
        check(done, files=41, calls=1_480)


def check(done, files, calls):
    found = Counter(json.loads(done.stdout))
    assert len(found) <= files, sorted(found)
    assert found.total() <= calls, found.most_common(9)
