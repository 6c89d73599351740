"""Running means of metrics, totals, and what an interrupted run measures with."""

import gc
import io
import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.classification import MulticlassAccuracy

from camshaft import Engine, Events, count_tokens, supervised
from camshaft.handlers import (
    Average,
    Checkpoint,
    EarlyStopping,
    JSONLines,
    Metrics,
    ProgressBar,
    Totals,
    Validate,
)

ALWAYS = Events.ITERATION_COMPLETED


def engine_of(*averages, number=torch.tensor):
    """Each batch is a loss and the samples it is of; None is no loss at all."""

    def step(state, batch):
        loss, samples = batch
        if loss is not None:
            state.metrics["loss"] = number(loss)
        return {"samples": samples}

    return Engine(step, *averages)


def by_samples(output):
    return output["samples"]


BATCHES = [(0.7, 256), (0.8, 256), (0.9, 10)]


@pytest.mark.parametrize("number", [float, torch.tensor], ids=["floats", "tensors"])
def test_the_mean_over_an_epoch_counts_samples_in_training_as_in_evaluation(number):
    engine = engine_of(Average("loss", weight=by_samples), number=number)
    engine.add(Validate(BATCHES))
    metrics = engine.run(BATCHES, max_epochs=1).metrics
    assert round(float(metrics["loss/epoch"]), 4) == 0.7529
    assert float(metrics["loss/epoch"]) == float(metrics["val/loss"])
    assert metrics.keys() == {"loss", "loss/epoch", "val/loss"}


def test_a_supervised_engine_tells_its_samples():
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Linear(2, 1)
    data = [(torch.randn(n, 2, generator=generator), torch.zeros(n, 1)) for n in (7, 7, 2)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    engine.add(Average("loss"), Validate(data))
    metrics = engine.run(data, max_epochs=2).metrics
    assert metrics["loss/epoch"] == metrics["val/loss"]
    assert metrics["loss/epoch"] != metrics["loss"]


def test_within_the_step_there_is_no_output_yet_to_count_by():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    engine.add(Average("loss", over=2, when=Events.STEP_COMPLETED(every=2)))
    with pytest.raises(TypeError, match="not there yet: use ITERATION_COMPLETED"):
        engine.run([(torch.ones(3, 2), torch.ones(3, 1))] * 2, max_epochs=1)


def test_an_epoch_begins_anew_and_one_that_is_cut_short_has_a_mean_too():
    engine = engine_of(Average("loss", weight=1))
    seen = []
    engine.on(Events.EPOCH_COMPLETED)(lambda state: seen.append(float(state.metrics["loss/epoch"])))
    data = [(1.0, 1), (3.0, 1)]
    state = engine.run(data, max_iterations=3)
    assert seen == [2.0]
    assert state.metrics["loss/epoch"] == 1.0


@pytest.mark.parametrize("stop_at", [None, 1, 3, 4, 6])
def test_written_at_each_iteration_it_is_the_mean_since_the_epoch_began(stop_at, paused):
    by_hand, seen = [], []
    for _ in range(2):
        total = samples = 0.0
        for loss, n in BATCHES:
            total, samples = total + loss * n, samples + n
            by_hand.append(total / samples)

    def engine():
        engine = engine_of(Average("loss", weight=by_samples, when=ALWAYS), number=float)
        engine.on(ALWAYS)(lambda state: seen.append(state.metrics["loss/epoch"]))
        return engine

    state = paused(engine(), BATCHES, stop_at) if stop_at else None
    engine().run(BATCHES, max_epochs=2, state=state)
    assert seen == by_hand


def test_a_progress_bar_shows_the_mean_since_the_epoch_began():
    file = io.StringIO()
    engine = engine_of(Average("loss", weight=by_samples, when=ALWAYS), number=float)
    engine.add(ProgressBar("loss/epoch", interval=1e-9, file=file))
    engine.run([(1.0, 1), (2.0, 1), (6.0, 1)], max_epochs=2)
    shown = [line.rpartition("loss/epoch=")[2].strip("]") for line in file.getvalue().split("\n")]
    assert [each for each in shown if each] == ["1", "1.5", "3", "3"] * 2


@given(st.lists(st.tuples(st.floats(-100, 100), st.integers(1, 9)), min_size=1), st.integers(1, 5))
def test_a_window_holds_the_last_values(batches, length):
    engine = engine_of(Average("loss", over=length, weight=by_samples, when=ALWAYS))
    seen = []
    engine.on(ALWAYS)(lambda state: seen.append(float(state.metrics["loss/mean"])))
    engine.run(batches, max_epochs=1)
    for end, found in enumerate(seen, 1):
        window = batches[max(0, end - length) : end]
        total = sum(float(torch.tensor(loss)) * n for loss, n in window)
        assert found == pytest.approx(total / sum(n for _, n in window), abs=1e-9)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20), st.floats(0.1, 0.99))
def test_the_exponential_mean_is_that_of_decaying_weights(losses, decay):
    engine = engine_of(Average("loss", decay=decay, weight=1), number=float)
    found = engine.run([(loss, 1) for loss in losses], max_epochs=1).metrics["loss/smooth"]
    weights = [decay**age for age in reversed(range(len(losses)))]
    expected = sum(map(lambda w, x: w * x, weights, losses)) / sum(weights)
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("form", [{}, {"over": 9}, {"decay": 0.5}], ids=str)
@pytest.mark.parametrize("number", [float, torch.tensor], ids=["floats", "tensors"])
def test_nan_is_seen_unless_it_is_to_be_left_out(form, number):
    data = [(1.0, 1), (math.nan, 1), (1.0, 1)]

    def mean(**more):
        average = Average("loss", weight=1, name="mean", **form, **more)
        return float(engine_of(average, number=number).run(data, max_epochs=1).metrics["mean"])

    assert math.isnan(mean())
    assert mean(skip_nan=True) == 1.0


def test_an_iteration_without_a_new_value_counts_for_nothing():
    engine = engine_of(Average("loss", weight=1))
    data = [(None, 1), (1.0, 1), (None, 1), (None, 1), (4.0, 1)]
    assert engine.run(data, max_epochs=1).metrics["loss/epoch"] == 2.5


def test_a_metric_that_nothing_produces_is_an_error_that_lists_those_there_are():
    engine = engine_of(Average("los", weight=1))
    with pytest.raises(KeyError, match="no metric 'los' .* there is: 'loss'"):
        engine.run(BATCHES, max_epochs=1)


def test_by_default_it_is_written_when_loggers_write_a_row():
    engine = engine_of(Average("loss", over=10, weight=1))
    writes = []

    @engine.on(ALWAYS)
    def look(state):
        if state.metrics.get("loss/mean") is not None:
            writes.append(state.metrics.written("loss/mean"))

    engine.run([(float(i), 1) for i in range(120)], max_epochs=1)
    assert len(set(writes)) == 2


@pytest.mark.parametrize("form", [{}, {"over": 3}, {"decay": 0.5}], ids=str)
@pytest.mark.parametrize("stop_at", [1, 4, 7])
@pytest.mark.parametrize("number", [float, torch.tensor], ids=["floats", "tensors"])
def test_an_interrupted_mean_is_the_same_as_an_uninterrupted_one(form, stop_at, number, paused):
    data = [(loss, samples) for samples, loss in enumerate((0.1, 0.7, 0.3, 0.9), 1)]

    def engine():
        return engine_of(Average("loss", weight=by_samples, name="mean", **form), number=number)

    expected = engine().run(data, max_epochs=2).metrics["mean"]
    state = paused(engine(), data, stop_at)
    assert engine().run(data, max_epochs=2, state=state).metrics["mean"] == expected


def test_sums_keep_what_narrow_numbers_lose():
    engine = engine_of(
        Average("loss", weight=1000), number=lambda x: torch.tensor(x, dtype=torch.float16)
    )
    assert engine.run([(300.0, 1)] * 3, max_epochs=1).metrics["loss/epoch"] == 300.0


@pytest.mark.slow
def test_no_graph_is_kept_and_the_number_of_tensors_does_not_grow():
    weight = torch.nn.Parameter(torch.ones(()))
    engine = Engine(lambda state, batch: state.metrics.update(loss=weight * batch))
    engine.add(*(Average("loss", weight=1, **form) for form in ({}, {"over": 5}, {"decay": 0.9})))
    counts = []

    @engine.on(ALWAYS(at=(100, 1000)))
    def count(state):
        gc.collect()
        counts.append(sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects()))

    metrics = engine.run([1.0] * 1000, max_epochs=1).metrics
    assert counts[1] <= counts[0]
    assert not any(metrics[f"loss/{kind}"].requires_grad for kind in ("epoch", "mean", "smooth"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"over": 0}, "needs a number of values, from 1"),
        ({"over": True}, "needs a number of values, from 1"),
        ({"decay": 1.0}, "between 0 and 1"),
        ({"over": 2, "decay": 0.5}, "give one of them"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        Average("loss", **arguments)


def test_a_metric_has_a_name():
    with pytest.raises(TypeError, match="needs the name of a metric"):
        Average(0.9)


def error_of(prediction, target):
    wrong = (prediction.argmax(1) != target).float()
    return {"all": wrong.mean(), "last": {"one": wrong[-1]}}


def train(directory, stop_at=None):
    """Train with everything that accumulates, with a checkpoint on the disk; the rows written."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    data = [
        (torch.randn(n, 4, generator=generator), torch.randint(3, (n,), generator=generator))
        for n in (5, 3, 8, 2)
    ]
    engine = supervised(model, optimizer, torch.nn.functional.cross_entropy)
    engine.add(
        Metrics({"accuracy": MulticlassAccuracy(3), "error": error_of}),
        Average("loss", when=ALWAYS),
        Average("loss", over=3, when=ALWAYS),
        Average("loss", decay=0.7, when=ALWAYS),
        Totals({"samples": lambda batch: len(batch[0])}, when=ALWAYS),
        EarlyStopping("loss/epoch", patience=9),
        Checkpoint(directory / "run", when=ALWAYS, resume=True),
        JSONLines(directory / "rows.jsonl", when=ALWAYS | Events.EPOCH_COMPLETED),
    )
    if stop_at is not None:
        engine.on(ALWAYS(at=stop_at))(lambda state: state.interrupt("the machine is taken away"))
    engine.run(data, max_epochs=2)
    return [json.loads(line) for line in (directory / "rows.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("stop_at", [1, 3, 4, 6])
def test_the_rows_of_an_interrupted_run_are_those_of_an_uninterrupted_one(tmp_path, stop_at):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    expected = train(whole)
    train(parts, stop_at)
    assert train(parts) == expected
    assert {"error/all", "error/last/one", "loss/epoch", "loss/mean"} <= {
        *expected[-2],
        *expected[-1],
    }


COUNTS = {"samples": len, "ones": torch.sum}
DATA = [torch.ones(3), torch.ones(2), torch.ones(4)]


def build():
    return Engine(lambda state, batch: None, Totals(COUNTS))


def test_totals_are_never_reset():
    metrics = build().run(DATA, max_epochs=3).metrics
    assert metrics["total/samples"] == 27
    assert torch.equal(metrics["total/ones"], torch.tensor(27.0))


def test_token_counts_are_those_of_the_output():
    model = torch.nn.Embedding(3, 3)
    engine = supervised(model, torch.optim.SGD(model.parameters()), torch.nn.CrossEntropyLoss())
    engine.add(Totals({"tokens": count_tokens}))
    words = torch.tensor([0, 1, 2])
    state = engine.run([(words, torch.tensor([1, -100, 2]))], max_epochs=2)
    assert state.metrics["total/tokens"] == 4


def test_what_cannot_count_is_refused():
    with pytest.raises(TypeError, match="needs functions of the batch"):
        Totals({"samples": 3})


@pytest.mark.parametrize("first", ["average", "validate"])
def test_what_only_evaluations_write_is_averaged_there_alone(first):
    def look(state, batch):
        state.metrics["psnr"] = float(batch)

    handlers = [
        Average("psnr", weight=1),
        Validate([1, 2, 3], when=Events.EPOCH_COMPLETED(every=2)),
    ]
    engine = Engine(lambda state, batch: None, evaluate=look)
    engine.add(*(handlers if first == "average" else reversed(handlers)))
    assert engine.run(range(5), max_epochs=3).metrics == {"val/psnr": 2.0}


def test_a_metric_that_a_validation_lacks_too_is_refused_as_soon_as_it_can_be_known():
    def look(state, batch):
        state.metrics["psnr"] = float(batch)

    validate = Validate([1], when=Events.EPOCH_COMPLETED(every=2))
    engine = Engine(lambda state, batch: None, evaluate=look)
    engine.add(Average("ssim", weight=1), validate)
    with pytest.raises(KeyError, match="no metric .ssim. .*: .val/psnr."):
        engine.run(range(5), max_epochs=5)


def test_a_batch_without_samples_counts_for_nothing():
    inputs, targets = torch.arange(8.0).reshape(8, 1), torch.ones(8, 1)
    full = [(inputs[:4], targets[:4]), (inputs[:0], targets[:0]), (inputs[4:], targets[4:])]
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    error = {"error": lambda prediction, target: (prediction - target).abs().mean()}
    engine.add(Average("loss"), Average("loss", over=3, name="last"), Metrics(error))
    engine.add(Totals(), Validate(full))
    metrics = engine.run(full, max_epochs=1).metrics
    loss = torch.nn.functional.mse_loss(model(inputs), targets).item()
    for name in ("loss/epoch", "last", "val/loss"):
        assert float(metrics[name]) == pytest.approx(loss)
    assert float(metrics["error"]) == float(metrics["val/error"])
    assert metrics["total/samples"] == 8
