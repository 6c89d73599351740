"""The norm of gradients as a metric."""

import pytest
import torch

from camshaft import Engine, EventEnum, Events, Update
from camshaft.handlers import ClipGradNorm, GradNorm
from camshaft.handlers.grad_norm import _compare


class Gan(EventEnum):
    CRITIC_UPDATED = "critic_updated"


def run(*handlers, update_both=False):
    weights, others = (torch.nn.Parameter(torch.zeros(2)) for _ in "ab")
    optimizer, other = (torch.optim.SGD([each], lr=1.0) for each in (weights, others))
    update, update_other = Update(optimizer), Update(other, event=Gan.CRITIC_UPDATED)

    def process(state, batch):
        update(state, (torch.tensor([3.0, 4.0]) * weights).sum())
        if update_both:
            update_other(state, (torch.tensor([6.0, 8.0]) * others).sum())

    made = [handler(optimizer, other) if callable(handler) else handler for handler in handlers]
    state = Engine(process, *made).run([1], max_epochs=1)
    return {name: value.item() for name, value in state.metrics.items()}, weights.tolist()


def test_the_norm_is_a_metric_and_gradients_stay_as_they_are():
    assert run(GradNorm()) == ({"grad_norm": 5.0}, [-3.0, -4.0])


def test_it_is_the_norm_before_clipping_wherever_it_is_attached():
    for handlers in ([ClipGradNorm(1.0), GradNorm()], [GradNorm(), ClipGradNorm(1.0)]):
        metrics, weights = run(*handlers)
        assert metrics == {"grad_norm": 5.0}
        assert weights == pytest.approx([-0.6, -0.8])


def test_clipping_twice_at_the_same_norm_is_clipping_once():
    once, twice = run(ClipGradNorm(1.0))[1], run(ClipGradNorm(1.0), ClipGradNorm(1.0))[1]
    assert once == pytest.approx(twice)


def test_several_optimizers_have_metrics_of_their_own_by_name():
    metrics, _ = run(
        lambda optimizer, other: GradNorm(optimizer=optimizer, name="generator"),
        lambda optimizer, other: ClipGradNorm(100.0, optimizer=other, name="critic"),
        update_both=True,
    )
    assert metrics == {"grad_norm/generator": 5.0, "grad_norm/critic": 10.0}


def test_other_norms_can_be_chosen():
    assert run(GradNorm(float("inf")))[0] == {"grad_norm": 4.0}


def test_a_step_of_ones_own_has_to_say_whose_gradients_are_ready():
    def process(state, batch):
        state.fire(Events.GRADIENTS_READY)

    with pytest.raises(RuntimeError, match="make the step with Update, or pass optimizer="):
        Engine(process, GradNorm()).run([1], max_epochs=1)


def test_ranks_that_disagree_are_told_who_has_what():
    nan = float("nan")
    _compare([1.0, 1.0 + 1e-7], 3)
    _compare([nan, nan], 3)
    with pytest.raises(RuntimeError, match="at step 3: their norm is rank 0 has 1, rank 1 has 1.1"):
        _compare([1.0, 1.1], 3)
    with pytest.raises(RuntimeError, match="rank 1 has nan"):
        _compare([1.0, nan], 3)


def test_checking_alone_finds_no_fault():
    assert run(GradNorm(check=True))[0] == {"grad_norm": 5.0}
