"""Losses whose graphs are used again."""

import pytest
import torch
from torch import nn

from camshaft import Engine, EventEnum, Update

DATA = [torch.randn(3, 2) for _ in range(4)]


def build():
    torch.manual_seed(0)
    model, head = nn.Linear(2, 2), nn.Linear(2, 1)
    return model, head, torch.optim.SGD(model.parameters(), 0.1)


class Own(EventEnum):
    STEPPED = "stepped"


@pytest.mark.parametrize("scaled", [False, True])
def test_two_updates_share_a_graph_as_in_a_loop(scaled):
    model, head, optimizer = build()
    other = torch.optim.SGD(head.parameters(), 0.1)
    settings = {"scaler": torch.amp.GradScaler("cpu")} if scaled else {}
    first, second = Update(other, event=Own.STEPPED, **settings), Update(optimizer)

    def step(state, inputs):
        made = model(inputs)
        first(state, head(made.detach()).mean() + made.square().mean() * 0, retain_graph=True)
        second(state, made.square().mean())

    objects = {"model": model, "head": head, "optimizer": optimizer, "other": other}
    Engine(step, first, second, objects=objects).run(DATA, max_epochs=1)

    model_by_hand, _, by_hand = build()
    for inputs in DATA:
        by_hand.zero_grad()
        model_by_hand(inputs).square().mean().backward()
        by_hand.step()
    assert torch.equal(model.weight, model_by_hand.weight)


def test_the_parts_of_a_micro_batch_share_a_graph():
    model, _, optimizer = build()
    update = Update(optimizer)

    def step(state, inputs):
        made = model(inputs)
        with update.micro_batch(state) as micro:
            micro.backward(made.square().mean(), retain_graph=True)
            micro.backward(made.abs().mean())
            micro.count(made.mean())

    Engine(step, update, objects={"model": model, "optimizer": optimizer}).run(DATA, max_epochs=1)
    by_hand, _, hand_optimizer = build()
    for inputs in DATA:
        hand_optimizer.zero_grad()
        made = by_hand(inputs)
        made.square().mean().backward(retain_graph=True)
        made.abs().mean().backward()
        hand_optimizer.step()
    assert torch.equal(model.weight, by_hand.weight)


def test_the_error_of_a_freed_graph_names_the_argument_and_that_of_a_moved_weight_the_order():
    model, _, optimizer = build()
    update = Update(optimizer)

    def step(state, inputs, keep=False):
        inputs.requires_grad_()
        made = model(inputs).square()
        update(state, made.mean(), retain_graph=keep)
        (gradient,) = torch.autograd.grad(made.sum(), inputs, create_graph=True)
        update(state, gradient.square().sum())

    objects = {"model": model, "optimizer": optimizer}
    with pytest.raises(RuntimeError, match="a second time") as freed:
        Engine(step, update, objects=objects).run(DATA, max_epochs=1)
    assert "update(state, loss, retain_graph=True)" in "".join(freed.value.__notes__)
    with pytest.raises(RuntimeError, match="inplace operation") as moved:
        Engine(lambda s, b: step(s, b, True), update, objects=objects).run(DATA, max_epochs=1)
    assert "compute the second loss after the first update" in "".join(moved.value.__notes__)
