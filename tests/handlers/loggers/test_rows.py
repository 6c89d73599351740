"""Loggers of one's own, and the rows of interrupted runs: the same ones as without."""

import csv
import json
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from camshaft import Engine, EventEnum, Events, Stage, supervised
from camshaft.handlers import LRSchedule, Validate
from camshaft.handlers.common import flat_hparams, need
from camshaft.handlers.loggers import (
    CSV,
    Histogram,
    Image,
    ImageFiles,
    JSONLines,
    Logger,
    TensorBoard,
    Text,
)
from camshaft.handlers.schedules import cosine, warmup

from ..bridges.trackers.runs import EACH, fail_and_resume

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

    return validating(train_step, logger)


def validating(train_step, logger):
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
    engine = Engine(inverse, kind.logger(tmp_path / "rows", when=EACH))
    engine.on(Events.ITERATION_COMPLETED)(
        lambda state: seen.append(iterations(kind, tmp_path / "rows"))
    )
    with pytest.raises(ZeroDivisionError):
        engine.run([1, 2, 0], max_epochs=1)
    assert seen == [[], [1]]  # the function is called before the logger
    assert iterations(kind, tmp_path / "rows") == [1, 2]


@pytest.mark.filterwarnings("ignore:the metric 'loss' of an evaluation")
def test_evaluations_write_no_rows(kind, tmp_path):
    Engine(inverse, kind.logger(tmp_path / "rows")).evaluate([1, 2])
    assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize(
    "save",
    [
        EACH(at=13),
        EACH(at=15),  # has a row
        EACH(at=10),  # ends an epoch, whose row is still to come
        EACH(at=2),  # before there is any row
        Events.EPOCH_COMPLETED(at=2),
        Events.STEP_COMPLETED(at=2),  # never: the run starts anew
    ],
    ids=repr,
)
def test_a_run_that_fails_and_is_resumed_has_the_rows_of_one_that_did_not(kind, save, tmp_path):
    def to(name, **arguments):
        return build(kind.logger(tmp_path / name, when=WHEN), **arguments)

    def check():
        assert kind.read(tmp_path / "parts") != whole

    to("whole").run(DATA, max_epochs=3)
    whole = kind.read(tmp_path / "whole")
    fail_and_resume(partial(to, "parts"), save, fail_at=26, data=DATA, max_epochs=3, between=check)
    assert kind.read(tmp_path / "parts") == whole


def test_a_run_that_has_nothing_left_to_do_leaves_the_rows_alone(kind, tmp_path):
    engine = build(kind.logger(tmp_path / "rows", when=WHEN))
    state = engine.run(DATA, max_epochs=1)
    rows = kind.read(tmp_path / "rows")
    engine.run(DATA, state=state)
    assert kind.read(tmp_path / "rows") == rows


def odd(logger, *, fail_at=None):
    """An engine that validates where no row is due, and steps each third iteration."""

    def train_step(state, batch):
        if state.iteration == fail_at:
            raise RuntimeError("interrupted")
        state.metrics["loss"] = torch.tensor(1 / state.iteration)
        if state.iteration % 3 == 0:
            state.metrics["norm"] = state.iteration / 3
            state.fire(Events.STEP_COMPLETED)

    return validating(train_step, logger)


def test_each_value_is_in_a_row_of_the_iteration_in_which_it_was_measured(tmp_path):
    path = tmp_path / "rows"
    odd(JSONLines(path, when=EACH(every=4))).run(range(5), max_epochs=2, max_iterations=11)
    clocks = ("iteration", "step", "epoch")
    assert [[row.pop(each) for each in clocks] + [sorted(row)] for row in lines(path)] == [
        [3, 0, 1, ["norm"]],
        [4, 1, 1, ["loss"]],
        [5, 1, 1, ["val/loss"]],
        [6, 1, 2, ["norm"]],
        [8, 2, 2, ["loss"]],
        [9, 2, 2, ["norm"]],
        [10, 3, 2, ["loss", "val/loss"]],  # what is left at the end of the run
    ]


def validated(logger, *, fail_at=None, start=True, rows=EACH(every=9)):
    """An engine that validates twice, more often than the logger writes rows."""

    def train_step(state, batch):
        if state.training:
            if state.iteration == fail_at:
                raise RuntimeError("interrupted")
            state.metrics["loss"] = 1 / state.iteration
        else:
            state.metrics["error"] = torch.tensor(float(state.parent.iteration))
            if state.name == "text":
                state.metrics["text"] = Text(f"at {state.parent.iteration}")

    often = EACH(every=2) | (Events.STARTED if start else EACH(at=1)) | Events.EPOCH_COMPLETED
    return Engine(
        train_step,
        logger(rows),
        Validate([1], when=often),
        Validate([1], name="rare", when=EACH(every=3)),
    )


@pytest.mark.filterwarnings("ignore:the metric 'error' of an evaluation")
def test_each_validation_is_in_a_row_however_rarely_rows_are_written(kind, tmp_path):
    validated(lambda when: kind.logger(tmp_path / "rows", when=when)).run(range(8), max_epochs=2)
    found = kind.read(tmp_path / "rows")
    for name, expected in (
        ("val/error", [0, 2, 4, 6, 8, 8, 10, 12, 14, 16, 16]),  # and at the end of each epoch
        ("rare/error", [3, 6, 9, 12, 15]),
    ):
        if kind.logger is TensorBoard:
            assert found[name] == [(each, each) for each in expected]
        else:
            rows = [row for row in found if row.get(name, "") != ""]
            pairs = [(int(row["iteration"]), float(row[name])) for row in rows]
            assert pairs == [(each, each) for each in expected]
    assert iterations(kind, tmp_path / "rows")[-1:] == [16]


def test_what_a_validation_shows_is_in_its_row_and_rows_stay_in_their_order(tmp_path):
    engine = validated(lambda when: JSONLines(tmp_path / "rows", when=when))
    engine.add(Validate([1], name="text", when=EACH(every=2))).run(range(8), max_epochs=2)
    found = lines(tmp_path / "rows")
    assert [row["iteration"] for row in found] == sorted(row["iteration"] for row in found)
    shown = [row["text/text"]["text"] for row in found if "text/text" in row]
    assert shown == [f"at {each}" for each in range(2, 17, 2)]
    assert [row["iteration"] for row in found if "loss" in row] == [8, 9, 16]


def test_the_clocks_of_ones_own_are_in_the_rows_of_their_own_moment(tmp_path):
    engine = build(JSONLines(tmp_path / "rows", when=EACH(every=3)))
    engine.on(EACH)(lambda state: state.fire(Own.HAPPENED))
    engine.run(range(4), max_epochs=2)
    found = [(row["iteration"], row.get("Own.HAPPENED")) for row in lines(tmp_path / "rows")]
    assert found == [(3, 3), (4, None), (6, 6), (8, 8)]


class Own(EventEnum):
    HAPPENED = "happened"


@pytest.mark.parametrize("save", [2, 4, 5, 7])
def test_rows_of_earlier_iterations_are_there_once_wherever_a_run_is_saved(kind, save, tmp_path):
    def to(name, **arguments):
        return odd(kind.logger(tmp_path / name, when=EACH(every=4)), **arguments)

    to("whole").run(range(5), max_epochs=3)
    fail_and_resume(partial(to, "parts"), EACH(at=save), fail_at=14, data=range(5), max_epochs=3)
    if kind.logger is TensorBoard:
        assert scalars(tmp_path / "parts") == scalars(tmp_path / "whole")
    else:
        assert (tmp_path / "parts").read_bytes() == (tmp_path / "whole").read_bytes()
    assert not list(tmp_path.glob("*.1"))


def test_what_was_measured_before_the_first_iteration_is_in_a_row_of_its_own_once(tmp_path):
    def build(fail_at=None):
        engine = odd(JSONLines(tmp_path / "rows", when=EACH(every=4)), fail_at=fail_at)
        start = Events.STARTED(where=lambda state: state.iteration == 0)
        engine.on(start)(lambda state: state.metrics.update({"val/loss": 9.0}))
        return engine

    fail_and_resume(build, EACH(at=1), fail_at=5, data=range(5))
    assert [row["iteration"] for row in lines(tmp_path / "rows")] == [0, 3, 4, 5]
    assert not (tmp_path / "rows.1").exists()  # the run goes on: its rows are no other run's


def test_a_logger_that_joins_a_run_that_goes_on_has_no_rows_of_before(tmp_path):
    engine = odd(JSONLines(tmp_path / "first"))
    state = engine.run(range(5), max_epochs=1)
    engine.add(CSV(tmp_path / "second", when=EACH(every=4)))
    engine.run(range(5), max_epochs=2, state=state)
    assert [int(row["iteration"]) for row in table(tmp_path / "second")] == [6, 8, 9, 10]


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

    logger = kind.logger(tmp_path / "rows", when=EACH(every=100))
    Engine(train_step, logger).run(range(1000), max_epochs=1)
    assert Counted.reads == 10


class Board:
    def __init__(self, start):
        pass

    def write(self, row):
        pass

    def sync(self):
        pass

    def close(self):
        pass


def test_a_logger_is_called_after_what_it_opens_or_as_one_says():
    engine = Engine(lambda state, batch: None, Logger(Board), Logger(Board, name="mine"))
    assert list(engine.handlers) == ["Logger(Board)", "Logger(mine)"]


def test_what_opens_nothing_is_refused():
    with pytest.raises(TypeError, match="needs what makes a writer"):
        Logger("tensorboard")


def test_what_no_logger_shows_stays_where_it_is_with_one_warning(tmp_path):
    def train_step(state, batch):
        state.metrics.update(thing=object(), matrix=torch.eye(2), name="x", loss=torch.tensor(1.0))
        state.metrics.update(note=Text("shown by others"))

    engine = Engine(train_step, *(Logger(Board, name=name, when=EACH) for name in "ab"))
    with pytest.warns(UserWarning, match="no logger shows") as caught:
        state = engine.run([1, 2], max_epochs=1)
    assert [str(each.message).split(": make")[0] for each in caught] == [
        "no logger shows state.metrics['thing'], a value of type object",
        "no logger shows state.metrics['matrix'], a value of type Tensor of shape (2, 2)",
        "no logger shows state.metrics['name'], a value of type str",
    ]
    assert set(state.metrics) == {"thing", "matrix", "name", "loss", "note"}


def test_a_medium_that_no_logger_shows_is_told_of_once_by_its_name(tmp_path):
    def train_step(state, batch):
        state.metrics["sample"] = Text("a text")
        state.metrics["picture"] = Image(torch.zeros(2, 2))
        state.metrics["weights"] = Histogram.of(torch.ones(3))

    def run(*loggers):
        Engine(train_step, CSV(tmp_path / "rows", when=EACH), *loggers).run([1, 2], max_epochs=1)

    with pytest.warns(UserWarning, match="no logger shows") as caught:
        run()
    told = [str(each.message) for each in caught]
    assert [each.split(": ")[0] for each in told] == [
        "no logger shows state.metrics['sample'], a value of type Text",
        "no logger shows state.metrics['picture'], a value of type Image",
        "no logger shows state.metrics['weights'], a value of type Histogram",
    ]
    assert "engine.add(JSONLines(path)) writes it" in told[0]
    assert "engine.add(ImageFiles(directory)) writes it" in told[1]
    with pytest.warns(UserWarning, match=r"state.metrics\['picture'\]") as caught:
        run(JSONLines(tmp_path / "lines"))
    assert len(caught) == 1
    run(JSONLines(tmp_path / "lines"), ImageFiles(tmp_path / "images"))
    run(TensorBoard(tmp_path / "board"))
    run(Logger(Board))


@pytest.mark.parametrize("kind", [JSONLines, CSV])
def test_two_loggers_do_not_write_to_one_file(kind, tmp_path):
    with pytest.raises(ValueError, match="JSONLines writes to .* already; give this logger a file"):
        Engine(lambda state, batch: None, JSONLines(tmp_path / "rows"), kind(tmp_path / "rows"))


def test_only_clocks_of_the_users_own_are_in_a_row(tmp_path):
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    engine.add(LRSchedule(warmup(1).then(cosine())), JSONLines(tmp_path / "rows", when=EACH))
    engine.run([(torch.ones(1, 1), torch.ones(1, 1))] * 3, max_epochs=1)
    row = json.loads((tmp_path / "rows").read_text().splitlines()[-1])
    assert set(row) == {"iteration", "step", "epoch", "loss", "lr"}


def test_a_library_that_is_not_there_is_named_with_what_to_install():
    with pytest.raises(ModuleNotFoundError) as caught:
        need("no_such_library", "Board", "board")
    assert str(caught.value) == 'Board needs no_such_library: pip install "camshaft[board]"'


def test_hyper_parameters_that_are_numbers_truths_and_texts_stay_so_and_others_become_text():
    plain = {"a": {"b": True}, "int": 1, "float": math.inf, "str": "x"}
    found = flat_hparams(plain | {"none": None, "list": [1, 2], "type": torch.float32})
    assert found == {
        **{"a/b": True, "int": 1, "float": math.inf, "str": "x"},
        **{"none": "None", "list": "[1, 2]", "type": "torch.float32"},
    }
    assert found["a/b"] is True
