"""ClearML without a server: its offline sessions, read back."""

import json
from importlib.util import find_spec

import pytest

# Not importorskip: ClearML changes argparse for the whole process when it is imported.
pytestmark = pytest.mark.skipif(
    find_spec("clearml") is None, reason='needs pip install "camshaft[clearml]"'
)

SCRIPT = """
import pickle, sys
import torch
from camshaft import Engine, Events
from camshaft.handlers.loggers import ClearML, Histogram, Image, delivery

delivery.PATIENCE = 100  # at its end ClearML waits ten seconds offline

def build(fail_at=None):
    def train_step(state, batch):
        if state.iteration == fail_at:
            raise RuntimeError("interrupted")
        state.metrics["loss"] = torch.tensor(1 / state.iteration)
        if state.iteration == 2:
            state.metrics["val/loss"] = 0.25
            state.metrics["seen"] = Image(torch.rand(3, 4, 5))
            state.metrics["weights"] = Histogram.of(torch.rand(9), bins=3)

    hparams = {"lr": 0.1, "model": {"width": 8}}
    options = {"auto_connect_frameworks": {"detect_repository": False}}
    logger = ClearML("tests", name="mine", when=Events.ITERATION_COMPLETED, hparams=hparams,
                     options=options, offline=True)
    return Engine(train_step, logger)

saved, first = [], build(fail_at=4)
first.on(Events.ITERATION_COMPLETED(at=2))(lambda state: state.save("test"))
first.on(Events.SAVING)(lambda state: saved.append(pickle.dumps(state.state_dict())))
try:
    first.run(range(5), max_epochs=1)
except RuntimeError:
    second = build()
    second.on(Events.LOADING)(lambda state: state.load_state_dict(pickle.loads(saved[0])))
    second.run(range(5), max_epochs=1)
"""


@pytest.fixture
def offline(tmp_path, monkeypatch):
    monkeypatch.setenv("CLEARML_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CLEARML_CONFIG_FILE", str(tmp_path / "clearml.conf"))


@pytest.mark.slow
def test_two_parts_of_a_run_are_sessions_with_one_tag_and_all_rows(processes, tmp_path, offline):
    processes.run(SCRIPT, cwd=tmp_path)
    tasks, found, media = [], {}, []
    for folder in sorted((tmp_path / "cache" / "offline").glob("offline-*/")):
        tasks.append(json.loads((folder / "task.json").read_text()))
        for line in (folder / "metrics.jsonl").read_text().splitlines():
            for event in json.loads(line):
                if event["type"] == "training_stats_scalar":
                    name = (event["metric"], event["variant"], event["iter"])
                    assert found.setdefault(name, event["value"]) == event["value"]
                else:
                    media.append((event["metric"], event["iter"]))
    losses = {place[2]: value for place, value in found.items() if place[0] == "loss"}
    assert losses == {number: pytest.approx(1 / number) for number in range(1, 6)}
    assert found["val", "loss", 2] == 0.25
    assert {("seen", 2), ("weights", 2)} <= {*media}
    assert len(tasks) == 2
    assert len({*(tag for task in tasks for tag in task["tags"] if "camshaft:" in tag)}) == 1
    assert [task["hyperparams"]["model"]["width"]["value"] for task in tasks] == ["8", "8"]
