"""A tracker of one's own, in twenty lines."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from camshaft import Engine, EventEnum
from camshaft.handlers.loggers import Image, Logger, Text

from .runs import EACH, fail_and_resume

TRACKED: dict = {}


class Tracker:
    """Keeps the rows of each run by their numbers."""

    def __init__(self, start):
        self.rows = TRACKED.setdefault(start.run, {})

    def write(self, row):
        self.rows.setdefault(row.number, (row.clocks, row.metrics, row.media))

    def sync(self):
        pass

    def close(self):
        pass


class GanEvents(EventEnum):
    CRITIC_UPDATED = "critic_updated"


@pytest.fixture(autouse=True)
def tracked():
    TRACKED.clear()
    return TRACKED


def build(fail_at=None):
    def train_step(state, batch):
        if state.iteration == fail_at:
            raise RuntimeError("interrupted")
        state.metrics["loss"] = torch.tensor(1 / state.iteration)
        if state.iteration % 2:
            state.fire(GanEvents.CRITIC_UPDATED)

    return Engine(train_step, Logger(Tracker, when=EACH))


def test_rows_carry_all_clocks(tracked):
    build().run([1, 2, 3], max_epochs=1)
    [rows] = tracked.values()
    assert [clocks for clocks, _, _ in rows.values()] == [
        {"iteration": i, "step": 0, "epoch": 1, "GanEvents.CRITIC_UPDATED": count}
        for i, count in [(1, 1), (2, 1), (3, 2)]
    ]


def test_a_resumed_run_has_the_same_name_and_its_rows_the_same_numbers(tracked):
    before = {}

    def look():
        before.update(*tracked.values())
        assert list(before) == [1, 2, 3, 4, 5, 6, 7]

    fail_and_resume(build, EACH(at=5), fail_at=8, data=range(5), max_epochs=2, between=look)
    [rows] = tracked.values()
    assert [clocks["iteration"] for clocks, _, _ in rows.values()] == list(range(1, 11))
    assert {number: rows[number] for number in before} == before


def test_another_run_has_another_name(tracked):
    engine = build()
    engine.run([1], max_epochs=1)
    engine.run([1], max_epochs=1)
    assert len(tracked) == 2


def test_media_come_in_the_row_of_their_moment(tracked):
    def train_step(state, batch):
        state.metrics["note"] = Text("x")
        if batch == 2:
            state.metrics["seen"] = Image(torch.ones(2, 2))

    Engine(train_step, Logger(Tracker, when=EACH)).run([1, 2], max_epochs=1)
    [rows] = tracked.values()
    assert [list(media) for _, _, media in rows.values()] == [["note"], ["note", "seen"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("ClearML", "clearml"),
        ("Comet", "comet_ml"),
        ("MLflow", "mlflow"),
        ("SwanLab", "swanlab"),
        ("TensorBoard", "tensorboardX"),  # which imports comet_ml
        ("WandB", "wandb"),
    ],
)
def test_no_client_draws_from_the_random_numbers_of_the_training_or_forks_it(
    processes, tmp_path, name, library
):
    """It would at a moment of its own, in its thread; ClearML even seeds them all.

    What another thread has open at a fork, such as the pipe of a command, stays open in the child.
    """
    if find_spec(library) is None:
        pytest.skip(f"needs {library}")
    env = {
        "CLEARML_CACHE_DIR": str(tmp_path),
        "CLEARML_CONFIG_FILE": str(tmp_path / "clearml.conf"),
    }
    script = tmp_path / "script.py"  # not in a repository, whose differences ClearML would read
    script.write_text(Path(__file__).with_name("beside_a_run.py").read_text())
    processes.run(script, name, cwd=tmp_path, env=env, fresh=True)


@pytest.mark.slow
def test_all_clients_are_imported_before_the_first_thread_runs(processes, tmp_path):
    """Two threads that import at once may deadlock, and the tracker of one of them gets no rows."""
    script = tmp_path / "script.py"
    script.write_text(THREE_TRACKERS)
    processes.run(script, cwd=tmp_path, fresh=True)


THREE_TRACKERS = """
import sys

from camshaft import Engine
from camshaft.handlers import MLflow, SwanLab, WandB

clients = {"wandb", "swanlab", "mlflow.tracking"}
trackers = WandB("one"), SwanLab("two"), MLflow("three", uri="sqlite:///mlflow.db")
assert not clients & {*sys.modules}
Engine(lambda state, batch: None, *trackers)
assert clients <= {*sys.modules}, clients - {*sys.modules}
"""
