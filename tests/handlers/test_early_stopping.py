"""Early stopping."""

import logging
import math

import pytest
import torch

from camshaft import Engine, Events, State
from camshaft.handlers import EarlyStopping


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
    reason = run([math.nan, math.nan], patience=2).stop_reason
    assert reason == "early stopping: score was NaN in 2 looks"


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
        run([1.0, None], patience=2)


def test_a_value_of_the_middle_of_an_epoch_is_taken_once_if_that_is_allowed():
    def stopped(**arguments):
        engine = Engine(lambda state, batch: None, EarlyStopping("score", patience=1, **arguments))
        engine.on(Events.ITERATION_COMPLETED(every=3))(lambda s: s.metrics.update(score=s.epoch))
        return engine.run([1] * 5, max_epochs=4)

    with pytest.raises(LookupError, match="iteration 3, and this is iteration 5"):
        stopped()
    assert stopped(allow_stale=True).epoch == 2


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
    assert not run([1.0, 2.0], patience=1).control.resumable


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
