"""Accumulation windows: their gradients, when ranks average them, and the scale of losses."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft import Engine, EventEnum, Events, Update, supervised
from camshaft.engine.update import non_finite, norm_of
from camshaft.handlers import Checkpoint, LRSchedule

SCRIPT = Path(__file__).parents[2] / "distributed" / "updates_on_ranks.py"
INF = float("inf")
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
    assert not state.step_under_way.windows


def test_a_window_keeps_the_scale_that_it_began_with():
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    weight, update = make(accumulate=3, scaler=scaler)
    engine, gradients = Engine(lambda state, x: update(state, x * weight)), []
    engine.on(Events.ITERATION_COMPLETED(at=2))(lambda state: scaler.update(1024.0))
    engine.on(Events.GRADIENTS_READY)(lambda state: gradients.append(weight.grad.item()))
    engine.run([1.0, 2.0, 6.0], max_epochs=1)
    assert gradients == pytest.approx([3.0], rel=1e-6)  # a scale is a float32


def test_sparse_gradients_are_looked_at_too():
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    assert non_finite([embedding.weight.grad]).item() == 0.0
    (embedding(torch.tensor([1])) * float("nan")).sum().backward()
    assert non_finite([embedding.weight.grad]).item() == 1.0


def updates(module, **options):
    return Update(torch.optim.SGD(module.parameters(), lr=0.1), **options)


def test_the_norm_of_a_sparse_gradient_is_that_of_the_dense_one():
    twice = torch.sparse_coo_tensor(
        [[0, 0, 2]], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], (3, 2), check_invariants=True
    )
    assert norm_of([twice]).item() == twice.to_dense().norm().item()
    opposite = torch.sparse_coo_tensor([[0, 0]], [[1.0], [-1.0]], (3, 1), check_invariants=True)
    assert norm_of([opposite, torch.zeros(2)]).item() == 0.0


def test_a_model_on_one_rank_has_nothing_to_average():
    model = torch.nn.Linear(1, 1)
    assert updates(model).sync is None
    assert updates(model, model=model).sync is None
    assert updates(model, model=model, sync="close").sync is None


def test_unknown_ways_are_refused():
    with pytest.raises(ValueError, match="sync='each': needs one of 'last', 'close'; to average"):
        updates(torch.nn.Linear(1, 1), sync="each")


def test_on_two_ranks_gradients_are_averaged_once_a_window_and_right(processes):
    results = processes.run_ranks(2, SCRIPT)
    names = re.findall(r"^def (\w+_\w+_\w+_\w+)\(\):$", SCRIPT.read_text(), re.MULTILINE)
    assert len(names) >= 12
    for name in names:
        assert all(f": {name}\n" in each.stdout for each in results), name


def train(losses, accumulate=1, scale=1024.0, optimizer=None, **limits):
    """Run losses `factor * weight`; return the state and what was seen."""
    weight = torch.nn.Parameter(torch.tensor(1.0))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=1000)
    update = Update(optimizer, accumulate=accumulate, scaler=scaler, **limits)
    engine = Engine(lambda state, x: update(state, x * weight), LRSchedule(scheduler))
    seen = []
    for event in (Events.GRADIENTS_READY, Events.STEP_COMPLETED, Events.STEP_SKIPPED):
        engine.on(event)(lambda state, e=event: seen.append((e.name, state.step)))
    rates = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: rates.append(scheduler.get_last_lr()[0]))
    state = engine.run(losses, max_epochs=1)
    return state, weight.item(), seen, rates, scaler


def test_an_overflow_in_window_2_moves_no_clock_and_no_rate_and_the_next_step_is_right():
    state, weight, seen, rates, scaler = train([0.5, 0.5, 1.0, INF, 0.25, 0.75], accumulate=2)
    assert seen == [
        *(("GRADIENTS_READY", 0), ("STEP_COMPLETED", 1)),
        ("STEP_SKIPPED", 1),
        *(("GRADIENTS_READY", 1), ("STEP_COMPLETED", 2)),
    ]
    assert rates == [1.0, 0.5, 0.5, 0.5, 0.5, 0.25]
    assert weight == 1.0 - 0.5 - 0.5 * 0.5
    assert (state.step, state.counts[Events.STEP_SKIPPED]) == (2, 1)
    assert state.metrics["skipped_steps"] == 1
    assert scaler.get_scale() == 512.0


def test_a_scale_below_the_least_one_is_an_error_that_names_scale_and_step():
    with pytest.raises(FloatingPointError, match=r"fallen to 0.5 after step 1, below min_scale=1:"):
        train([1.0, INF, INF, INF, INF], scale=4.0, min_scale=1.0)
    state, *_ = train([1.0, INF, INF], scale=4.0, min_scale=1.0)
    assert state.counts[Events.STEP_SKIPPED] == 2


class Gan(EventEnum):
    CRITIC_UPDATED = "critic_updated"


@pytest.mark.parametrize("offset", [0, 1])
def test_two_updates_that_share_a_scaler_do_not_rescale_each_others_windows(offset):
    def run(share):
        weight, critic = (torch.nn.Parameter(torch.tensor(1.0)) for _ in "ab")
        scaler = None
        if share:  # grows with every step of either
            scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)
        update = Update(torch.optim.SGD([weight], lr=0.1), accumulate=2, scaler=scaler)
        other = torch.optim.SGD([critic], lr=0.1)
        update_critic = Update(other, accumulate=2, scaler=scaler, event=Gan.CRITIC_UPDATED)

        def process(state, x):
            update(state, x * weight)
            if state.iteration > offset:
                update_critic(state, 3 * x * critic)

        state = Engine(process).run([1.0, 2.0, 4.0, 8.0, 16.0], max_epochs=1)
        return weight.item(), critic.item(), state.step, state.counts[Gan.CRITIC_UPDATED]

    assert run(share=True) == run(share=False)


def test_a_skipped_step_looks_at_the_device_once_and_so_does_a_performed_one():
    reads = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is torch.ops.aten._local_scalar_dense.default:
                reads.append(function)
            return function(*args, **(kwargs or {}))

    def count(losses):
        reads.clear()
        with Watch():
            train(losses)
        return len(reads)

    few = count([1.0, 1.0])
    assert count([1.0, 1.0, 1.0]) == few + 1
    assert count([1.0, 1.0, INF]) == few + 2  # a look at the scale, which has become smaller


def test_scaler_options_are_those_of_the_scaler_of_an_update_and_only_with_fp16():
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    update = Update(optimizer, scaler=scaler, min_scale=0.5)
    loss_fn = torch.nn.functional.mse_loss
    assert supervised(model, update, loss_fn, precision="fp16").objects["scaler"] is scaler
    with pytest.raises(ValueError, match="a scaler is for precision='fp16'; precision is 'bf16'"):
        supervised(model, update, loss_fn, precision="bf16")
    with pytest.raises(ValueError, match="precision='fp16' needs a gradient scaler: Update"):
        supervised(model, Update(optimizer), loss_fn, precision="fp16")


def test_skipped_steps_and_the_scale_are_saved_and_resumed(tmp_path):
    def run(directory, iterations):
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
        update, loss_fn = Update(optimizer, scaler=scaler), torch.nn.functional.mse_loss
        engine = supervised(model, update, loss_fn, precision="fp16")
        save = Checkpoint(directory, when=Events.ITERATION_COMPLETED(every=2), resume=True)
        state = engine.add(save).run(data, max_iterations=iterations)
        skipped = state.counts[Events.STEP_SKIPPED]
        return model.weight.tolist(), scaler.state_dict(), state.step, state.metrics, skipped

    data = [
        (torch.ones(4, 2) * (INF if i in (1, 4) else i / 8), torch.ones(4, 1)) for i in range(8)
    ]
    whole = run(tmp_path / "whole", 8)
    run(tmp_path / "parts", 4)
    parts = run(tmp_path / "parts", 8)
    assert str(parts) == str(whole)  # NaN losses are equal here
    assert whole[2] == 6
    assert whole[3]["skipped_steps"] == 2


def test_a_window_that_is_opened_again_does_not_lose_its_gradients():
    weight, update = make()

    def process(state, i):
        with update.micro_batch(state) as micro:
            update.open(state)
            (i * weight).backward()
            micro.count(torch.tensor(0.0))

    with pytest.raises(RuntimeError, match="lose the gradients of 1 micro-batches"):
        Engine(process, update).run(range(4), max_epochs=1)
