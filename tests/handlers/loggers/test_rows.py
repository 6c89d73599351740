"""Logged rows of runs that were interrupted: the same ones as without."""

import csv
import json
import pickle
import signal
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from camshaft import Engine, Events, Stage, supervised
from camshaft.handlers import LRSchedule
from camshaft.handlers.loggers import CSV, JSONLines, TensorBoard

WHEN = Events.ITERATION_COMPLETED(every=3) | Events.EPOCH_COMPLETED | Events.COMPLETED
DATA = range(10)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def scalars(path):
    events: Any = EventAccumulator(str(path)).Reload()
    return {
        tag: [(scalar.step, scalar.value) for scalar in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


@dataclass
class Kind:
    """A logger, and how the rows it wrote are read back."""

    logger: Any
    read: Any


KINDS = [Kind(JSONLines, lines), Kind(CSV, table), Kind(TensorBoard, scalars)]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.logger.__name__)
def kind(request):
    return request.param


def build(logger, *, fail_at=None):
    """An engine that measures each iteration, each epoch, and sometimes."""

    def train_step(state, batch):
        if state.iteration == fail_at:
            raise RuntimeError("interrupted")
        state.metrics["loss"] = torch.tensor(1 / state.iteration)
        if state.iteration == 13:
            state.metrics["rare"] = 13.0

    engine = Engine(train_step, logger)

    @engine.on(Events.EPOCH_COMPLETED, stage=Stage.MEASURE)
    def validate(state):
        state.metrics["val/loss"] = 1 / state.epoch

    return engine


def iterations(kind, path):
    rows = kind.read(path)
    if isinstance(rows, dict):
        return [iteration for iteration, _ in rows.get("loss", [])]
    return [int(row["iteration"]) for row in rows]


def inverse(state, batch):
    state.metrics["loss"] = 1 / batch


def test_by_default_a_row_is_written_every_50_iterations_after_each_epoch_and_at_the_end(
    kind, tmp_path
):
    engine = Engine(inverse, kind.logger(tmp_path / "rows"))
    engine.run(range(1, 61), max_epochs=3, max_iterations=130)
    assert iterations(kind, tmp_path / "rows") == [50, 60, 100, 120, 130]


def test_each_row_can_be_read_as_soon_as_it_is_written_also_when_the_run_fails(kind, tmp_path):
    seen = []
    engine = Engine(inverse, kind.logger(tmp_path / "rows", when=Events.ITERATION_COMPLETED))
    engine.on(Events.ITERATION_COMPLETED)(
        lambda state: seen.append(iterations(kind, tmp_path / "rows"))
    )
    with pytest.raises(ZeroDivisionError):
        engine.run([1, 2, 0], max_epochs=1)
    assert seen == [[], [1]]  # the function is called before the logger
    assert iterations(kind, tmp_path / "rows") == [1, 2]


def test_evaluations_write_no_rows(kind, tmp_path):
    Engine(inverse, kind.logger(tmp_path / "rows")).evaluate([1, 2])
    assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize(
    "save",
    [
        Events.ITERATION_COMPLETED(at=13),
        Events.ITERATION_COMPLETED(at=15),  # has a row
        Events.ITERATION_COMPLETED(at=10),  # ends an epoch, whose row is still to come
        Events.ITERATION_COMPLETED(at=2),  # before there is any row
        Events.EPOCH_COMPLETED(at=2),
        Events.STEP_COMPLETED(at=2),  # never: the run starts anew
    ],
    ids=repr,
)
def test_a_run_that_fails_and_is_resumed_has_the_rows_of_one_that_did_not(kind, save, tmp_path):
    build(kind.logger(tmp_path / "whole", when=WHEN)).run(DATA, max_epochs=3)
    whole = kind.read(tmp_path / "whole")

    saved = []
    first = build(kind.logger(tmp_path / "parts", when=WHEN), fail_at=26)
    first.on(save)(lambda state: state.save("test"))
    first.on(Events.SAVING)(lambda state: saved.append(pickle.dumps(state.state_dict())))
    with pytest.raises(RuntimeError, match="interrupted"):
        first.run(DATA, max_epochs=3)
    assert kind.read(tmp_path / "parts") != whole

    second = build(kind.logger(tmp_path / "parts", when=WHEN))
    for each in saved:
        second.on(Events.LOADING)(lambda state: state.load_state_dict(pickle.loads(each)))  # noqa: B023
    second.run(DATA, max_epochs=3)
    assert kind.read(tmp_path / "parts") == whole


def test_a_finished_run_that_is_carried_on_has_the_rows_of_a_longer_one(kind, tmp_path):
    build(kind.logger(tmp_path / "whole", when=WHEN)).run(DATA, max_epochs=4)
    engine = build(kind.logger(tmp_path / "parts", when=WHEN))
    state = engine.run(DATA, max_epochs=1)
    state = engine.run(DATA, max_epochs=3, state=state)
    engine.run(DATA, max_epochs=4, state=state)
    assert kind.read(tmp_path / "parts") == kind.read(tmp_path / "whole")


def test_a_run_that_has_nothing_left_to_do_leaves_the_rows_alone(kind, tmp_path):
    engine = build(kind.logger(tmp_path / "rows", when=WHEN))
    state = engine.run(DATA, max_epochs=1)
    rows = kind.read(tmp_path / "rows")
    engine.run(DATA, state=state)
    assert kind.read(tmp_path / "rows") == rows


def test_a_killed_run_loses_no_row_that_its_checkpoint_counts_on(kind, processes, tmp_path):
    script = """
        import os, pickle, signal, sys
        from pathlib import Path
        from camshaft import Engine, Events
        from camshaft.handlers.loggers import {logger}

        folder = Path(sys.argv[1])

        def train_step(state, batch):
            if state.iteration == 18:
                os.kill(os.getpid(), signal.SIGKILL)
            state.metrics["loss"] = 1 / state.iteration

        engine = Engine(train_step, {logger}(folder / "rows", when=Events.ITERATION_COMPLETED))
        engine.on(Events.ITERATION_COMPLETED(at=12))(lambda state: state.save("test"))

        @engine.on(Events.SAVING)
        def save(state):
            (folder / "saved").write_bytes(pickle.dumps(state.state_dict()))

        engine.run(range(10), max_epochs=2)
    """
    name = kind.logger.__name__
    processes.run(script.replace("{logger}", name), tmp_path, code=-signal.SIGKILL)
    if name == "JSONLines":  # the kill may have come while a row was being written
        with (tmp_path / "rows").open("a") as file:
            file.write('{"iteration": 18, "lo')
    if name == "CSV":
        with (tmp_path / "rows").open("a") as file:
            file.write("18,0,2,0.0")

    def train_step(state, batch):
        state.metrics["loss"] = 1 / state.iteration

    saved = pickle.loads((tmp_path / "saved").read_bytes())
    for path in ("rows", "whole"):
        engine = Engine(train_step, kind.logger(tmp_path / path, when=Events.ITERATION_COMPLETED))
        if path == "rows":
            engine.on(Events.LOADING)(lambda state: state.load_state_dict(saved))
        engine.run(DATA, max_epochs=2)
    assert kind.read(tmp_path / "rows") == kind.read(tmp_path / "whole")


def test_each_row_holds_what_is_new(tmp_path):
    build(JSONLines(tmp_path / "rows", when=WHEN)).run(DATA, max_epochs=2)
    names = {
        (row["iteration"], *(name for name in ("loss", "rare", "val/loss") if name in row))
        for row in lines(tmp_path / "rows")
    }
    assert names == {
        *((iteration, "loss") for iteration in (3, 6, 9, 12, 18)),
        (15, "loss", "rare"),
        (10, "loss", "val/loss"),
        (20, "loss", "val/loss"),
    }


def test_a_thousand_iterations_logged_every_hundred_read_metrics_from_their_device_ten_times(
    kind, tmp_path
):
    class Counted(torch.Tensor):
        reads = 0

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            names = ("item", "tolist", "numpy", "cpu", "__float__", "__int__", "__bool__")
            cls.reads += function.__name__ in names
            return super().__torch_function__(function, types, args, kwargs or {})

    def train_step(state, batch):
        for name in ("loss", "accuracy", "norm"):
            state.metrics[name] = torch.tensor(1.0).as_subclass(Counted)

    logger = kind.logger(tmp_path / "rows", when=Events.ITERATION_COMPLETED(every=100))
    Engine(train_step, logger).run(range(1000), max_epochs=1)
    assert Counted.reads == 10


def test_the_rate_in_a_row_is_the_one_its_step_used(tmp_path):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    path, used = tmp_path / "rows", []
    engine.add(LRSchedule(schedule), JSONLines(path, when=Events.ITERATION_COMPLETED))
    engine.on(Events.GRADIENTS_READY)(
        lambda state: used.append(state.optimizer.param_groups[0]["lr"])
    )
    engine.run([(torch.ones(3, 2), torch.zeros(3, 1))] * 3, max_epochs=1)
    assert [row["lr"] for row in lines(path)] == used == [0.1, 0.05, 0.025]
