"""An end to runs whose loss is no number any more."""

import pytest
import torch

from camshaft import Engine, Events
from camshaft.handlers import TerminateOnNaN


def run(losses, *handlers):
    def process(state, batch):
        state.metrics["loss"] = torch.tensor(batch)

    engine = Engine(process, *handlers)
    saved = []
    engine.on(Events.ITERATION_COMPLETED(last=True))(lambda state: state.save("each"))
    engine.on(Events.SAVING)(lambda state: saved.append(state.iteration))
    try:
        engine.run(losses, max_epochs=1)
    finally:
        run.saved = saved


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_not_finite_is_an_error_and_nothing_is_saved_after_it(value):
    with pytest.raises(FloatingPointError, match=f"loss is {value}") as caught:
        run([1.0, 2.0, value, 1.0], TerminateOnNaN())
    assert "iteration 3" in caught.value.__notes__[0]
    assert run.saved == [1, 2]


def test_finite_losses_go_on():
    run([1.0, 2.0], TerminateOnNaN())
    assert run.saved == [1, 2]


def test_one_may_look_less_often_and_at_another_metric():
    nan = float("nan")
    run([nan, 1.0, nan, 2.0], TerminateOnNaN(when=Events.ITERATION_COMPLETED(every=2)))
    with pytest.raises(KeyError, match="no metric 'other'"):
        run([1.0], TerminateOnNaN("other"))
