"""Accumulation windows, the gradients that they gather, and when ranks average them."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft import Engine, Events, State, Update
from camshaft.engine.update import gradients_of, non_finite, norm_of, parameters_of

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


def partly_used():
    used, unused = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1))
    used.grad = torch.tensor([3.0, -4.0])
    return torch.optim.SGD([{"params": [used]}, {"params": [unused], "lr": 1.0}], lr=0.1)


def test_gradients_are_those_there_are_and_parameters_are_all():
    optimizer = partly_used()
    assert len(parameters_of(optimizer)) == 2
    assert [each.tolist() for each in gradients_of(optimizer)] == [[3.0, -4.0]]


@pytest.mark.parametrize(("kind", "expected"), [(2.0, 5.0), (1.0, 7.0), (float("inf"), 4.0)])
def test_the_norm_is_that_of_torch(kind, expected):
    optimizer = partly_used()
    assert norm_of(gradients_of(optimizer), kind).item() == expected
    clipped = torch.nn.utils.clip_grad_norm_(parameters_of(optimizer), 1e9, kind)
    assert norm_of(gradients_of(optimizer), kind).item() == clipped.item()
    assert norm_of([]).item() == 0.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_bad_element_breaks_them_all(bad):
    assert non_finite([torch.zeros(3), torch.tensor([0.0, bad])]).item() == 1.0


def test_large_gradients_whose_squares_overflow_are_numbers_all_the_same():
    large = [torch.full((4,), 1e30)]
    assert not norm_of(large).isfinite()
    assert non_finite(large).item() == 0.0


def test_sparse_gradients_are_looked_at_too():
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    assert non_finite([embedding.weight.grad]).item() == 0.0
    (embedding(torch.tensor([1])) * float("nan")).sum().backward()
    assert non_finite([embedding.weight.grad]).item() == 1.0


SCRIPT = Path(__file__).parents[2] / "distributed" / "updates_on_ranks.py"


def updates(module, **options):
    return Update(torch.optim.SGD(module.parameters(), lr=0.1), **options)


def test_a_model_on_one_rank_has_nothing_to_average():
    model = torch.nn.Linear(1, 1)
    assert updates(model).sync is None
    assert updates(model, model=model).sync is None
    assert updates(model, model=model, sync="close").sync is None


def test_unknown_ways_and_shards_that_cannot_be_averaged_by_hand_are_refused():
    class Sharded(torch.nn.Linear):
        def set_requires_gradient_sync(self, flag):
            self.flag = flag

    model, state = Sharded(1, 1), State(iteration=1, epoch_length=4)
    with pytest.raises(ValueError, match="sync='never': needs one of 'last', 'each', 'close'"):
        updates(model, sync="never")
    with pytest.raises(ValueError, match="it is for DistributedDataParallel"):
        updates(model, model=model, sync="close")
    compiled = torch.compile(model, backend="eager")
    with updates(model, model=compiled, accumulate=2).micro_batch(state):
        assert model.flag is False
    assert model.flag is True
    assert updates(model, model=model, sync="each").sync is None


def test_on_two_ranks_gradients_are_averaged_once_a_window_and_right(processes):
    results = processes.run_ranks(2, SCRIPT)
    names = re.findall(r"^    (\w+),$", SCRIPT.read_text(), re.MULTILINE)
    assert len(names) >= 12
    for name in names:
        assert all(f": {name}\n" in each.stdout for each in results), name
