"""Aim on this machine: its files, read back by its own client."""

import json

import pytest

pytest.importorskip("aim", reason='needs pip install "camshaft[aim]"')

SCRIPT = """
import json, pickle
import torch
from camshaft import Engine, Events
from camshaft.handlers.loggers import Aim, Histogram, Image, Text, delivery

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
    each = Events.ITERATION_COMPLETED
    return Engine(train_step, Aim("tests", directory="board", when=each, hparams=hparams))

saved, first = [], build(fail_at=6)
first.on(Events.ITERATION_COMPLETED(at=4))(lambda state: state.save("test"))
first.on(Events.SAVING)(lambda state: saved.append(pickle.dumps(state.state_dict())))
try:
    first.run(range(8), max_epochs=1)
except RuntimeError:
    second = build()
    second.on(Events.LOADING)(lambda state: state.load_state_dict(pickle.loads(saved[0])))
    second.run(range(8), max_epochs=1)

import aim
[name] = aim.Repo.from_path("board").list_all_runs()
run = aim.Run(name, repo="board", system_tracking_interval=None, capture_terminal_logs=False)
values = {each.name: each.values.sparse_list()[1] for each in run.metrics()}
found = [run["hparams"], run.experiment, values]
info = run.collect_sequence_info(("texts", "images", "distributions"), skip_last_value=True)
media = [each["name"] for kind in info.values() for each in kind]
print("FOUND", json.dumps([*found, sorted(str(each) for each in media)]))
run.close()
"""


def test_a_resumed_run_is_the_same_run_with_each_row_once(processes, tmp_path):
    out = processes.run(SCRIPT, cwd=tmp_path).stdout
    [line] = [line for line in out.splitlines() if line.startswith("FOUND ")]
    hparams, experiment, values, media = json.loads(line.removeprefix("FOUND "))
    assert hparams == {"lr": 0.1, "model": {"width": 8}}
    assert experiment == "tests"
    assert sorted(values["loss"]) == pytest.approx([1 / number for number in range(8, 0, -1)])
    assert values["epoch"] == [1.0] * 8
    assert media == ["note", "seen", "weights"]
