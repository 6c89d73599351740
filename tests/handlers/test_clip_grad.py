"""Gradient clipping."""

import pytest
import torch

from camshaft import Engine, Events, Update
from camshaft.handlers import ClipGradNorm, ClipGradValue


def two_weights():
    weights = torch.nn.Parameter(torch.zeros(2))
    return weights, torch.optim.SGD([weights], lr=1.0)


def run(handler, gradient=(3.0, 4.0), accumulate=1, batches=1, scaler=None):
    weights, optimizer = two_weights()
    update = Update(optimizer, accumulate=accumulate, scaler=scaler)

    def process(state, batch):
        update(state, (weights * torch.tensor(gradient)).sum())

    state = Engine(process, handler).run(range(batches), max_epochs=1)
    return weights.tolist(), state


def test_gradients_are_scaled_down_to_the_norm_and_the_norm_before_is_a_metric():
    weights, state = run(ClipGradNorm(1.0))
    assert weights == pytest.approx([-0.6, -0.8])
    assert state.metrics["grad_norm"].item() == 5.0


def test_gradients_of_a_smaller_norm_stay_as_they_are():
    weights, state = run(ClipGradNorm(10.0))
    assert weights == [-3.0, -4.0]
    assert state.metrics["grad_norm"].item() == 5.0


def test_the_norm_is_that_of_the_whole_window():
    weights, state = run(ClipGradNorm(1.0), accumulate=4, batches=4)
    assert weights == pytest.approx([-0.6, -0.8])
    assert state.metrics["grad_norm"].item() == 5.0


def test_gradients_are_clipped_after_they_are_unscaled():
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    weights, state = run(ClipGradNorm(1.0), scaler=scaler)
    assert weights == pytest.approx([-0.6, -0.8])
    assert state.metrics["grad_norm"].item() == 5.0


def test_other_norms_can_be_chosen():
    _, state = run(ClipGradNorm(1.0, norm_type=float("inf")))
    assert state.metrics["grad_norm"].item() == 4.0


def test_values_are_cut():
    weights, _ = run(ClipGradValue(3.5), gradient=(3.0, -4.0))
    assert weights == [-3.0, 3.5]


@pytest.mark.parametrize("clip", [ClipGradNorm, ClipGradValue])
def test_clipping_can_be_for_one_optimizer_of_several(clip):
    (weights, optimizer), (others, other_optimizer) = two_weights(), two_weights()
    update, update_other = Update(optimizer), Update(other_optimizer)

    def process(state, batch):
        update(state, 9 * weights.sum())
        update_other(state, 9 * others.sum())

    Engine(process, clip(1.0, optimizer=optimizer)).run([1], max_epochs=1)
    assert max(weights.abs()) <= 1
    assert others.tolist() == [-9.0, -9.0]


@pytest.mark.parametrize("clip", [ClipGradNorm, ClipGradValue])
def test_a_step_of_ones_own_has_to_say_whose_gradients_are_ready(clip):
    def process(state, batch):
        state.fire(Events.GRADIENTS_READY)

    with pytest.raises(RuntimeError, match="make the step with Update, or pass optimizer="):
        Engine(process, clip(1.0)).run([1], max_epochs=1)
    weights, optimizer = two_weights()
    weights.grad = torch.tensor([3.0, 4.0])
    Engine(process, clip(1.0, optimizer=optimizer)).run([1], max_epochs=1)
    assert max(weights.grad) <= 1


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan")])
@pytest.mark.parametrize("clip", [ClipGradNorm, ClipGradValue])
def test_a_bound_that_leaves_nothing_is_refused(clip, wrong):
    with pytest.raises(ValueError, match="needs a number above 0"):
        clip(wrong)
