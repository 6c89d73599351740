"""Trackio on this machine: its database, read back by its own client."""

import json

import pytest

pytest.importorskip("trackio", reason='needs pip install "camshaft[trackio]"')

SCRIPT = """
import json, pickle
import torch
from camshaft import Engine, Events
from camshaft.handlers.loggers import Histogram, Image, Text, Trackio, delivery

delivery.PATIENCE = 100

def build(fail_at=None):
    def train_step(state, batch):
        if state.iteration == fail_at:
            raise RuntimeError("interrupted")
        state.metrics["loss"] = torch.tensor(1 / state.iteration)
        if state.iteration == 2:
            state.metrics["note"] = Text("words")
            state.metrics["seen"] = Image(torch.rand(3, 4, 5), "noise")
            state.metrics["weights"] = Histogram.of(torch.rand(9), bins=3)

    hparams = {"lr": 0.1, "model": {"width": 8}}
    return Engine(train_step, Trackio("tests", when=Events.ITERATION_COMPLETED, hparams=hparams))

saved, first = [], build(fail_at=6)
first.on(Events.ITERATION_COMPLETED(at=4))(lambda state: state.save("test"))
first.on(Events.SAVING)(lambda state: saved.append(pickle.dumps(state.state_dict())))
try:
    first.run(range(8), max_epochs=1)
except RuntimeError:
    second = build()
    second.on(Events.LOADING)(lambda state: state.load_state_dict(pickle.loads(saved[0])))
    second.run(range(8), max_epochs=1)

from trackio import Api
from trackio.sqlite_storage import SQLiteStorage

[run] = Api().runs("tests")
print("FOUND", json.dumps([run.name, run.config, SQLiteStorage.get_logs("tests", run.name)]))
"""


def test_a_resumed_run_is_the_same_run_with_no_row_missing(processes, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    out = processes.run(SCRIPT, cwd=tmp_path).stdout
    [line] = [line for line in out.splitlines() if line.startswith("FOUND ")]
    name, config, rows = json.loads(line.removeprefix("FOUND "))
    assert len(name) == 32
    assert (config["lr"], config["model"]) == (0.1, {"width": 8})
    found = {}
    for row in rows:  # what comes twice is the same
        assert found.setdefault(row["iteration"], row)["loss"] == row["loss"]
    assert list(found) == list(range(1, 9))
    assert found[2]["note"]["_value"] == "words"
    assert found[2]["seen"]["caption"] == "noise"
    assert sum(found[2]["weights"]["values"]) == 9
