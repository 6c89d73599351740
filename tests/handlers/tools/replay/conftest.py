"""A run in a directory of the user's, and replays of its iterations."""

import json
from pathlib import Path

import pytest

from camshaft.handlers.tools.replay import replay_iteration

SCRIPT = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from camshaft import Events, supervised
from camshaft.handlers import Checkpoint, Fingerprints, Journal, JSONLines, latest, every

torch.manual_seed(0)
x = torch.randn(48, 4)
data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), 4, shuffle=True)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), 0.01)
FACTOR = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0


def loss_fn(prediction, target):
    return FACTOR * nn.functional.mse_loss(prediction, target)


engine = supervised(model, optimizer, loss_fn)
hidden = []
model[0].register_forward_hook(lambda module, given, made: hidden.append(made.sum().item()))


@engine.on(Events.ITERATION_COMPLETED)
def sums(state):
    state.metrics["hidden"] = hidden.pop()


EXTRA
engine.add(
    Checkpoint("runs/x", when=Events.ITERATION_COMPLETED(every=5), keep=KEEP, resume=RESUME),
    JSONLines("runs/x/rows.jsonl", when=Events.ITERATION_COMPLETED),
)
engine.run(data, max_epochs=3)
open("finished", "w").close()
"""
PRINTS = 'engine.add(Fingerprints("runs/x/prints.jsonl"), Journal("runs/x"))'


@pytest.fixture
def script(tmp_path):
    """Writes the script of the run, or another one."""

    def write(extra=PRINTS, resume="True", keep="latest(1) | every(10)"):
        text = SCRIPT.replace("EXTRA", extra).replace("RESUME", resume).replace("KEEP", keep)
        (tmp_path / "train.py").write_text(text)

    return write


@pytest.fixture
def run(processes, script, tmp_path, monkeypatch):
    """Makes a run in the user's directory."""
    monkeypatch.chdir(tmp_path)
    script()
    processes.run(tmp_path / "train.py", cwd=tmp_path)
    (tmp_path / "finished").unlink()
    return tmp_path / "runs/x"


@pytest.fixture
def replayed(forked, capsys):
    """Replays an iteration; the exit code and what was told."""

    def call(iteration, *arguments, path="runs/x", **options):
        command = ["python", "train.py", *map(str, arguments)]
        given = {"start": forked, "as_json": True} | options
        code = replay_iteration(Path(path), iteration, command, **given)
        return code, json.loads(capsys.readouterr().out)

    return call
