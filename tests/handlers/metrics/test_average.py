"""Running means of metrics."""

import gc
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from camshaft import Engine, Events, State, supervised
from camshaft.handlers import Average, Validate

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


def test_an_epoch_begins_anew_and_one_that_is_cut_short_has_a_mean_too():
    engine = engine_of(Average("loss", weight=1))
    seen = []
    engine.on(Events.EPOCH_COMPLETED)(lambda state: seen.append(float(state.metrics["loss/epoch"])))
    data = [(1.0, 1), (3.0, 1)]
    state = engine.run(data, max_iterations=3)
    assert seen == [2.0]
    assert state.metrics["loss/epoch"] == 1.0


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
@pytest.mark.parametrize("stop_at", range(1, 8))
@pytest.mark.parametrize("number", [float, torch.tensor], ids=["floats", "tensors"])
def test_an_interrupted_mean_is_the_same_as_an_uninterrupted_one(form, stop_at, number):
    data = [(loss, samples) for samples, loss in enumerate((0.1, 0.7, 0.3, 0.9), 1)]

    def engine():
        return engine_of(Average("loss", weight=by_samples, name="mean", **form), number=number)

    expected = engine().run(data, max_epochs=2).metrics["mean"]
    first = engine()
    first.on(ALWAYS(at=stop_at))(lambda state: state.stop("pause"))
    saved = first.run(data, max_epochs=2).state_dict()
    state = State()
    state.load_state_dict(saved)
    assert engine().run(data, max_epochs=2, state=state).metrics["mean"] == expected


def test_sums_keep_what_narrow_numbers_lose():
    engine = engine_of(
        Average("loss", weight=1000), number=lambda x: torch.tensor(x, dtype=torch.float16)
    )
    assert engine.run([(300.0, 1)] * 3, max_epochs=1).metrics["loss/epoch"] == 300.0


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
    assert counts[0] == counts[1]
    assert not any(metrics[f"loss/{kind}"].requires_grad for kind in ("epoch", "mean", "smooth"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"over": 0}, "needs a number of values, from 1"),
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
