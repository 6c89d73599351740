"""Early stopping, and the best weights in the model at the end."""

import logging
import math

import pytest
import torch
from torch import nn

from camshaft import Engine, Events, State
from camshaft.engine.state import End
from camshaft.handlers import (
    EMA,
    Checkpoint,
    EarlyStopping,
    Export,
    LRSchedule,
    RestoreBest,
    Validate,
    best,
    checkpoints,
)


def run(scores, state=None, **arguments):
    """Run as many epochs as there are scores; None is an epoch without a new score."""
    engine = Engine(lambda state, batch: None, EarlyStopping("score", **arguments))

    @engine.on(Events.ITERATION_COMPLETED)
    def score(state):
        if (value := scores[state.epoch - 1]) is not None:
            state.metrics["score"] = torch.tensor(value)

    return engine.run([1], max_epochs=len(scores), state=state)


@pytest.mark.parametrize(
    ("scores", "arguments", "stops_after"),
    [
        ([3.0, 2.0, 1.0, 0.5], {"patience": 1}, None),
        ([1.0, 2.0, 2.0, 2.0], {"patience": 2}, 3),
        ([1.0, 2.0, 0.5, 2.0, 2.0, 2.0], {"patience": 3}, 6),
        ([1.0, 2.0, 3.0, 4.0], {"patience": 2, "mode": "max"}, None),
        ([1.0, 0.9, 0.8], {"patience": 2, "mode": "max"}, 3),
        ([1.0, 1.0, 1.0], {"patience": 2}, 3),  # a tie is no improvement
        ([1.0, 0.95, 0.92, 0.85], {"patience": 2, "min_delta": 0.1}, 3),
        ([1.0, 0.95, 0.85, 0.8], {"patience": 2, "min_delta": 0.1}, None),
        ([math.inf, 1.0, 2.0], {"patience": 1}, 3),
    ],
)
def test_a_run_stops_after_so_many_looks_without_improvement(scores, arguments, stops_after):
    state = run(scores, **arguments)
    assert state.epoch == (stops_after or len(scores))
    assert (state.stop_reason == "max_epochs") == (stops_after is None)


def test_the_reason_says_what_was_waited_for():
    reason = run([1.0, 2.0, 3.0], patience=2).stop_reason
    assert reason == "early stopping: score has not improved on 1 in 2 looks"
    assert run([1.0, 2.0], patience=1).stop_reason.endswith("not improved on 1 in 1 look")
    reason = run([math.nan, math.nan], patience=2).stop_reason
    assert reason == "early stopping: score was NaN in 2 looks"


def test_a_metric_that_never_comes_is_told_of_where_it_may_come_later():
    def step(state, batch):
        state.metrics["score"] = 1.0

    engine = Engine(step, EarlyStopping("scroe", mode="max", allow_stale=True))
    with pytest.warns(UserWarning, match=r"in vain: no metric 'scroe' .* \(did you mean 'score'"):
        engine.run([1, 2], max_epochs=2)


def test_nan_is_no_improvement_and_is_told(caplog):
    with caplog.at_level(logging.WARNING, "camshaft"):
        state = run([1.0, math.nan, math.nan, 0.1], patience=2)
    assert state.epoch == 3
    assert "score is NaN" in caplog.text
    assert run([math.nan, 1.0, 0.5], patience=2).stop_reason == "max_epochs"


def test_a_look_that_finds_no_new_value_counts_for_nothing_if_that_is_allowed():
    scores = [None, 1.0, None, None, 2.0, None, 2.0, 3.0]
    assert run(scores, patience=2, allow_stale=True).epoch == 7


def test_a_look_that_finds_an_old_value_is_an_error():
    with pytest.raises(
        LookupError, match=r"'score' was last written in iteration 1, .* same when="
    ):
        run([1.0, None, 1.0], patience=2)


def test_a_value_of_the_middle_of_an_epoch_is_taken_once_if_that_is_allowed():
    def stopped(**arguments):
        engine = Engine(lambda state, batch: None, EarlyStopping("score", patience=1, **arguments))
        engine.on(Events.ITERATION_COMPLETED(every=3))(lambda s: s.metrics.update(score=s.epoch))
        return engine.run([1] * 5, max_epochs=4)

    with pytest.raises(LookupError, match="iteration 3, and this is iteration 5"):
        stopped()
    assert stopped(allow_stale=True).epoch == 2


@pytest.mark.parametrize("when", [Events.EPOCH_COMPLETED, Events.EPOCH_COMPLETED(last=True)])
@pytest.mark.parametrize("limits", [{"max_epochs": 1}, {"max_iterations": 5}, {"max_steps": 5}])
def test_a_look_at_the_end_of_a_run_takes_the_latest_value_and_counts_it_once(when, limits):
    def process(state, batch):
        if state.iteration % 2 == 0:
            state.metrics["score"] = state.iteration
        state.fire(Events.STEP_COMPLETED)

    engine = Engine(process, EarlyStopping("score", when=when))
    state = engine.run(range(5), **limits)
    assert state.stop_reason == next(iter(limits))
    patience = state.memory.saved["EarlyStopping(score)"]
    assert (patience.best, patience.waited) == (4.0, 0)
    state = engine.run(range(5), state=state, max_epochs=2, max_iterations=10, max_steps=10)
    assert (patience.best, patience.waited) == (4.0, 1)


def test_a_plateau_takes_the_latest_value_at_the_end_of_a_run():
    optimizer = torch.optim.SGD([torch.zeros(1)], 1.0)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    engine = Engine(lambda state, batch: None, objects={"optimizer": optimizer})
    engine.add(LRSchedule(plateau, metric="score", when=Events.EPOCH_COMPLETED(last=True)))
    engine.on(Events.ITERATION_COMPLETED(every=2))(lambda s: s.metrics.update(score=s.iteration))
    engine.run(range(9), max_iterations=5)
    assert plateau.best == 4


def test_two_looks_in_one_iteration_are_one_and_no_error():
    when = Events.EPOCH_COMPLETED | Events.COMPLETED
    assert run([1.0, 2.0], patience=2, when=when).stop_reason == "max_epochs"


def test_patience_goes_on_where_a_saved_run_was_left():
    left = run([1.0, 2.0, 2.0], patience=3)
    state = State()
    state.load_state_dict(left.state_dict())
    assert run([1.0, 2.0, 2.0, 2.0, 2.0], state=state, patience=3).epoch == 4


def test_a_run_that_was_left_before_the_end_of_its_epoch_looks_at_what_it_had():
    def build():
        engine = Engine(lambda state, batch: state.metrics.update(score=batch))
        return engine.add(EarlyStopping("score", patience=1))

    first = build()
    first.on(Events.ITERATION_COMPLETED(at=4))(lambda state: state.interrupt("pause"))
    left = first.run([1.0, 2.0], max_epochs=3)
    assert left.epoch == 2
    state = State()
    state.load_state_dict(left.state_dict())
    assert build().run([1.0, 2.0], max_epochs=3, state=state).stop_reason.startswith("early")
    assert state.iteration == 4


def test_a_stopped_run_is_not_resumable():
    assert run([1.0, 2.0], patience=1).end is End.FINAL


def test_a_metric_that_nothing_produces_is_an_error_at_the_first_look():
    with pytest.raises(KeyError, match="no metric 'score' has been produced so far") as caught:
        run([None], patience=1)
    assert "EarlyStopping(score).look" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"mode": "auto"}, "needs 'min' or 'max'"),
        ({"patience": 0}, "from 1"),
        ({"min_delta": -0.1}, "needs 0 or more"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        EarlyStopping("score", **arguments)


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


def validated(*handlers, when=Events.ITERATION_COMPLETED(every=2), **limits):
    """A model whose weight is the number of the iteration, validated by that number."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)

    def process(state, batch):
        if state.training:
            model.weight.data += 1
        else:
            state.metrics["loss"] = model.weight.item()

    engine = Engine(process, objects={"model": model})
    engine.add(*handlers, Validate([0], when=when)).run(range(10), **limits)
    return model.weight.item()


@pytest.mark.parametrize("limits", [{"max_iterations": 7}, {"max_iterations": 27}])
def test_the_best_weights_are_those_that_a_validation_between_epochs_measured(limits, tmp_path):
    assert validated(RestoreBest("val/loss", mode="min"), **limits) == 2
    last = limits["max_iterations"] - 1
    handlers = (RestoreBest("val/loss", mode="max"), Checkpoint(tmp_path))
    assert validated(*handlers, **limits) == last
    saved = checkpoints(tmp_path)[-1]
    assert saved.state_dict("model")["weight"].item() == last + 1
    assert saved.state_dict("best")["weight"].item() == last


def test_the_best_weights_are_found_by_a_validation_that_never_meets_the_end_of_an_epoch():
    when = Events.ITERATION_COMPLETED(every=13)
    assert validated(RestoreBest("val/loss", mode="max"), when=when, max_epochs=3) == 26


def test_the_best_weights_are_those_before_the_moment_of_the_validation_moves_them():
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)

    def process(state, batch):
        state.metrics["loss"] = model.weight.item()
        if state.training:
            model.weight.data += 1

    engine = Engine(process, objects={"model": model})
    engine.on(Events.ITERATION_COMPLETED)(lambda state: model.weight.data.add_(0.5))
    engine.add(Validate([0], when=Events.ITERATION_COMPLETED), RestoreBest("val/loss", mode="max"))
    engine.run(range(3), max_epochs=1)
    assert model.weight.item() == 4.0


def test_a_metric_that_a_validation_does_not_have_is_an_error_after_the_first_epoch():
    with pytest.raises(KeyError, match="no metric 'val/los' .* there is: 'val/loss'"):
        validated(RestoreBest("val/los"), max_epochs=2)


def test_weights_that_were_not_measured_are_not_kept_at_the_end_of_a_run(caplog):
    engine, weight = build([1, 2, 3], when=Events.ITERATION_COMPLETED(at=5))
    engine.run([1, 1], max_iterations=5)
    assert weight.item() == 5
    assert "an earlier iteration than these weights" in caplog.text
    assert "score was never a number; the last weights stay" in caplog.text


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
        Export(tmp_path, object="ema", keep=best(1, "score", "max")),
        weights="ema",
    )
    engine.run([1, 1], max_epochs=3)
    (saved,) = checkpoints(tmp_path)
    assert weight.item() == saved.state_dict("ema")["weight"].item()
    assert 3 < weight.item() < 4


def test_what_cannot_be_put_back_is_refused():
    with pytest.raises(TypeError, match="needs the name of a metric"):
        RestoreBest(3)
    with pytest.raises(ValueError, match=r"object='net'.* its modules are 'model'"):
        build([], object="net")
    with pytest.raises(ValueError, match=r"object 'model' already"):
        build([], name="model")
    engine, _ = build([1], weights="ema")
    with pytest.raises(ValueError, match=r"weights='ema'\): needs one of .*'model', 'best'"):
        engine.run([1], max_epochs=1)
