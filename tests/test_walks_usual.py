"""How many functions of the package a usual run enters, from its first line to its resumed end."""

import json
import sys
from inspect import CO_OPTIMIZED
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanSquaredError

import camshaft
from camshaft import Events, supervised
from camshaft.handlers import (
    Checkpoint,
    ClipGradNorm,
    EarlyStopping,
    JSONLines,
    LRSchedule,
    Metrics,
    NonFiniteGuard,
    StopOnSignal,
    Validate,
    best,
    latest,
)
from camshaft.handlers.schedules import cosine, warmup

ROOT = str(Path(camshaft.__file__).parent)
MOST = 1_039  # of some 3,300


def usual(directory):
    """An engine as most scripts have it, and its data."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    data = TensorDataset(torch.randn(22, 4), torch.randn(22, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    engine.add(
        ClipGradNorm(1.0),
        LRSchedule(warmup(4).then(cosine())),
        Metrics({"error": MeanSquaredError()}),
        NonFiniteGuard(),
        Validate(DataLoader(data, 8), name="val"),
        EarlyStopping("val/loss", mode="min", patience=9),
        StopOnSignal(),
        JSONLines(f"{directory}/rows.jsonl"),
        Checkpoint(directory, keep=latest(1) | best(1, "val/loss", mode="min"), resume=True),
    )
    return engine, DataLoader(data, 4, shuffle=True)


def entered(directory):
    """The functions that a run enters which fails in its second epoch and is started again."""
    found = set()

    def note(frame, event, _):
        code = frame.f_code
        is_function = code.co_flags & CO_OPTIMIZED and code.co_name[0] != "<"  # no body of a class
        if event == "call" and is_function and code.co_filename.startswith(ROOT):
            found.add((code.co_filename, code.co_firstlineno, code.co_name))

    sys.setprofile(note)
    for fails in (True, False):
        engine, loader = usual(directory)
        if fails:

            @engine.on(Events.ITERATION_COMPLETED(at=9))
            def fail(state):
                raise OSError("the machine")

        try:
            engine.run(loader, max_epochs=3)
        except OSError:
            assert fails
    sys.setprofile(None)
    return sorted(found)


ALONE = """
import json, sys
sys.path.insert(0, sys.argv[2])
from test_walks_usual import entered

print(json.dumps(entered(sys.argv[1])))
"""


def test_a_usual_run_enters_a_quarter_of_the_functions(processes, tmp_path):
    done = processes.run(ALONE, tmp_path / "run", Path(__file__).parent)
    found = json.loads(done.stdout)
    rooms = {}
    for file, _, _ in found:
        room = "/".join(Path(file).relative_to(ROOT).parts[:2])
        rooms[room] = rooms.get(room, 0) + 1
    assert len(found) <= MOST, rooms
