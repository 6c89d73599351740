"""The best weights are in the model at the end."""

import math

import pytest
from torch import nn

from camshaft import Engine, Events
from camshaft.handlers import EMA, Checkpoint, EarlyStopping, Export, RestoreBest, best, checkpoints


def build(scores, *handlers, **arguments):
    """An engine whose weight is the number of the iteration, with a score for each epoch of two."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)

    def process(state, batch):
        if state.training:
            model.weight.data += 1
            state.fire(Events.STEP_COMPLETED)

    engine = Engine(process, objects={"model": model})

    @engine.on(Events.EPOCH_COMPLETED(last=True))
    def score(state):
        state.metrics["score"] = scores[state.epoch - 1]

    handler = RestoreBest("score", **{"mode": "max"} | arguments)
    return engine.add(handler, *handlers), model.weight


def test_the_best_weights_are_there_at_a_limit():
    engine, weight = build([0.1, 0.9, 0.5])
    state = engine.run([1, 1], max_epochs=3)
    assert weight.item() == 4
    assert state.stop_reason == "max_epochs"


def test_and_when_early_stopping_or_a_handler_ends_the_run():
    engine, weight = build([3, 1, 2, 2, 2], EarlyStopping("score", patience=2), mode="min")
    state = engine.run([1, 1], max_epochs=5)
    assert "early stopping" in state.stop_reason
    assert (state.iteration, weight.item()) == (8, 4)
    engine, weight = build([1, 3, 2])
    engine.on(Events.ITERATION_COMPLETED(at=5))(lambda state: state.stop("enough"))
    state = engine.run([1, 1], max_epochs=5)
    assert (state.iteration, weight.item()) == (5, 4)
    engine, weight = build([1, 2, 3])
    assert engine.run([1, 1], max_steps=5).stop_reason == "max_steps"
    assert weight.item() == 5  # what ends inside an epoch is looked at too


def test_a_run_that_was_interrupted_or_failed_keeps_the_weights_it_has():
    engine, weight = build([3, 1, 1])
    engine.on(Events.ITERATION_COMPLETED(at=4))(lambda state: state.interrupt("signal"))
    engine.run([1, 1], max_epochs=3)
    assert weight.item() == 4
    engine, weight = build([3, 1, 1])

    @engine.on(Events.ITERATION_COMPLETED(at=4))
    def fail(state):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        engine.run([1, 1], max_epochs=3)
    assert weight.item() == 4


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([0.5, 0.5, 0.5], 2), ([math.nan, 0.5, 0.4], 4), ([0.4, math.nan, 0.3], 2)],
)
def test_of_equal_values_the_earlier_stays_and_nan_is_never_best(scores, expected):
    engine, weight = build(scores)
    engine.run([1, 1], max_epochs=3)
    assert weight.item() == expected


def test_where_nothing_is_best_the_last_weights_stay_and_it_is_said(caplog):
    engine, weight = build([math.nan] * 2)
    engine.run([1, 1], max_epochs=2)
    assert weight.item() == 4
    assert "score was never a number; the last weights stay" in caplog.text


def test_a_value_that_was_measured_of_other_weights_is_an_error():
    engine, _ = build([1, 2, 3], when=Events.ITERATION_COMPLETED(after=2))
    with pytest.raises(LookupError, match="last written in iteration 2, and this is iteration 3"):
        engine.run([1, 1], max_epochs=2)


@pytest.mark.parametrize("left", [1, 2, 3, 4, 5])
def test_a_resumed_run_ends_with_the_same_weights_and_its_checkpoints_with_its_own(tmp_path, left):
    scores = [0.1, 0.9, 0.5]

    def run(left=None, seed=0.0):
        engine, weight = build(scores, Checkpoint(tmp_path, resume=True))
        engine.objects["best"].weight.data += seed
        if left:
            engine.on(Events.ITERATION_COMPLETED(at=left))(lambda state: state.interrupt("x"))
        engine.run([1, 1], max_epochs=3)
        return weight.item()

    assert run(left) == left
    assert run(seed=7.0) == 4
    assert checkpoints(tmp_path)[-1].state_dict("model")["weight"].item() == 6
    assert run(seed=7.0) == 4  # over already, and as it was


def test_a_run_that_is_carried_on_goes_on_with_its_own_last_weights():
    engine, weight = build([1, 3, 2, 2])
    state = engine.run([1, 1], max_epochs=3)
    assert weight.item() == 4
    trained = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: trained.append(weight.item()))
    engine.run([1, 1], max_epochs=3, state=state)
    assert weight.item() == 4
    engine.run([1, 1], max_epochs=4, state=state)
    assert trained == [7, 8]
    assert weight.item() == 4


def test_the_best_average_can_be_what_is_put_back(tmp_path):
    engine, weight = build(
        [0.1, 0.9, 0.5],
        EMA(0.5, warmup=False),
        Export(tmp_path, "ema", keep=best(1, "score", "max")),
        weights="ema",
    )
    engine.run([1, 1], max_epochs=3)
    (saved,) = checkpoints(tmp_path)
    assert weight.item() == saved.state_dict("ema")["weight"].item()
    assert 3 < weight.item() < 4


def test_what_cannot_be_meant_is_refused():
    with pytest.raises(TypeError, match="needs the name of a metric"):
        RestoreBest(3)
    with pytest.raises(ValueError, match=r"object='net'.* its modules are 'model'"):
        build([], object="net")
    with pytest.raises(ValueError, match=r"object 'model' already"):
        build([], name="model")
    engine, _ = build([1], weights="ema")
    with pytest.raises(ValueError, match=r"weights='ema'\): needs one of .*'model', 'best'"):
        engine.run([1], max_epochs=1)
