"""Accumulation windows."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft import Engine, Events, State, Update

LOSSES = st.lists(st.one_of(st.none(), st.integers(-9, 9)), min_size=1, max_size=12)


def make(accumulate=2, scaler=None):
    weight = torch.nn.Parameter(torch.tensor(0.0, dtype=torch.float64))
    update = Update(torch.optim.SGD([weight], lr=0.0), accumulate=accumulate, scaler=scaler)
    return weight, update


@settings(deadline=None, max_examples=60)
@given(LOSSES, st.integers(1, 5), st.booleans(), st.booleans())
def test_a_step_is_the_mean_over_what_its_window_held(losses, accumulate, weighted, sized):
    weight, update = make(accumulate)

    def process(state, i):
        if losses[i] is None:
            update(state, None)
        else:
            update(state, losses[i] * weight, weight=i + 1 if weighted else None)

    engine, gradients = Engine(process), []
    engine.on(Events.GRADIENTS_READY)(lambda state: gradients.append(weight.grad.item()))
    numbers = range(len(losses))
    data = list(numbers) if sized else type("Data", (), {"__iter__": lambda _: iter(numbers)})()
    state = engine.run(data, max_epochs=1)

    edges = [*range(0, len(losses), accumulate), len(losses)]
    windows = [[i for i in range(a, b) if losses[i] is not None] for a, b in pairwise(edges)]
    expected = [
        sum(losses[i] for i in own) / (sum(i + 1 for i in own) if weighted else len(own))
        for own in windows
        if own
    ]
    assert gradients == pytest.approx(expected, rel=1e-12)
    assert state.step == len(expected)
    assert not state.step_under_way.is_open


def test_a_copy_puts_back_counts_and_gradients_as_often_as_asked():
    weight, update = make(accumulate=3)
    state = State(iteration=1)
    update(state, 2 * weight)
    put_back = update.copy(state)
    for _ in range(2):
        update(state, 100 * weight)
        assert weight.grad.item() == 102.0
        put_back()
        assert weight.grad.item() == 2.0
    steps = []
    update.optimizer.register_step_pre_hook(lambda *_: steps.append(weight.grad.item()))
    update(state, 4 * weight)
    assert (weight.grad.item(), state.step) == (6.0, 0)  # the second micro-batch, not the fourth
    update(state, 6 * weight)
    assert (steps, state.step) == ([4.0], 1)


def test_a_copy_without_an_open_window_puts_back_that_there_is_none():
    weight, update = make(accumulate=2)
    state = State(iteration=1)
    put_back = update.copy(state)
    update(state, 2 * weight)
    assert state.step_under_way.is_open
    put_back()
    assert not state.step_under_way.is_open


def test_a_window_keeps_the_scale_that_it_began_with():
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    weight, update = make(accumulate=3, scaler=scaler)
    engine, gradients = Engine(lambda state, x: update(state, x * weight)), []
    engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: scaler.update(1024.0))
    engine.on(Events.GRADIENTS_READY)(lambda state: gradients.append(weight.grad.item()))
    engine.run([1.0, 2.0, 6.0], max_epochs=1)
    assert gradients == pytest.approx([3.0], rel=1e-6)  # a scale is a float32
