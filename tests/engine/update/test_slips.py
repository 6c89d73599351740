"""Slips of the pen around a backward pass: what is said about them."""

import pytest
import torch
from torch import nn

from camshaft import Engine, Update
from camshaft.handlers import ClipGradNorm, Validate

BATCHES = [torch.ones(2, 2)] * 4


@pytest.fixture
def model():
    return nn.Linear(2, 1)


@pytest.fixture
def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def notes(engine):
    """The notes of the error that ends a run of one epoch."""
    with pytest.raises((RuntimeError, AttributeError)) as caught:
        engine.run(BATCHES, max_epochs=1)
    return "\n".join(caught.value.__notes__)


def test_zero_grad_inside_of_a_window_is_an_error(model, optimizer):
    update = Update(optimizer, accumulate=2)

    def step(state, batch):
        optimizer.zero_grad()
        update(state, model(batch).mean())

    with pytest.raises(RuntimeError, match=r"Leave zero_grad\(\) out of the process function"):
        Engine(step).run(BATCHES, max_epochs=1)


def test_a_step_in_an_evaluation_is_told_to_ask_whether_it_is_a_training(model, optimizer):
    def step(state, batch):
        model(batch).mean().backward()
        optimizer.step()

    found = notes(Engine(step, Validate(BATCHES), objects={"model": model}))
    assert found.count("write `if state.training:`") == 1


@pytest.mark.parametrize(
    ("spoil", "advice"),
    [
        (torch.Tensor.detach, "The loss depends on no trainable parameter"),
        (torch.Tensor.item, "leave out .item() and float()"),
        (lambda loss: [loss.backward(), loss][1], "leave loss.backward() out"),
    ],
)
def test_a_loss_that_has_no_gradient_or_was_used_is_told(model, optimizer, spoil, advice):
    update = Update(optimizer)
    step = lambda state, batch: update(state, spoil(model(batch).pow(2).mean()))  # noqa: E731
    assert advice in notes(Engine(step))


def test_clipping_for_an_optimizer_that_nothing_steps_is_told(model, optimizer):
    update = Update(optimizer)
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    step = lambda state, batch: update(state, model(batch).mean())  # noqa: E731
    objects = {"model": model, "optimizer": optimizer}
    with pytest.warns(UserWarning, match="ClipGradNorm is for the steps of an optimizer"):
        Engine(step, update, ClipGradNorm(1.0, optimizer=other), objects=objects).run(
            BATCHES, max_epochs=1
        )
    Engine(step, ClipGradNorm(1.0, optimizer=optimizer), objects=objects).run(BATCHES, max_epochs=1)
    Engine(step, ClipGradNorm(1.0, optimizer=optimizer)).run(BATCHES, max_epochs=1)
