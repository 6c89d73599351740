"""The learning-rate finder: real steps, every rate, and afterwards everything as it was."""

import math
import pkgutil
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from camshaft import Engine, EventEnum, Events, Update, supervised
from camshaft.handlers import (
    EMA,
    Checkpoint,
    ClipGradNorm,
    JSONLines,
    LRCurve,
    LRSchedule,
    NonFiniteGuard,
    SpikeGuard,
    Validate,
    find_lr,
)
from camshaft.handlers.schedules import cosine, warmup


class Net(nn.Module):
    """With running means, dropout, and a plain attribute that changes in each step."""

    def __init__(self):
        super().__init__()
        layers = [
            nn.Linear(4, 32),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(32, 3),
        ]
        self.layers, self.calls = nn.Sequential(*layers), 0

    def forward(self, x):
        self.calls += 1
        return self.layers(x)


def samples(count=192):
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, inputs[:, :3].argmax(1))


def build(tmp_path, **arguments):
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    engine = supervised(model, optimizer, cross_entropy, accumulate=2, **arguments)
    engine.add(
        ClipGradNorm(1.0),
        LRSchedule(warmup(5).then(cosine(final=0.1))),
        EMA(),
        NonFiniteGuard("skip"),
        Validate(list(DataLoader(samples(32), 16))),
        JSONLines(tmp_path / "rows", when=Events.ITERATION_COMPLETED),
        Checkpoint(tmp_path / "run"),
    )
    return engine


def seed():
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)


def plain(value):
    """Nested values with tensors as bytes, so that equality is that of every bit."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.detach().numpy().tobytes()
    if isinstance(value, dict):
        return [(str(key), plain(each)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value if isinstance(value, int | float | str | None) else repr(value)


def look(engine, loader):
    """Everything that training changes, to the last bit."""
    model, optimizer = engine.objects["model"], engine.objects["optimizer"]
    return {
        **{name: plain(each.state_dict()) for name, each in engine.objects.items()},
        "gradients": [each.grad is None for each in model.parameters()],
        "attributes": (model.calls, model.training),
        "optimizer itself": [key for key in vars(optimizer) if not key.startswith("_camshaft")],
        "generators": plain([torch.get_rng_state(), random.getstate(), np.random.get_state()[1]]),
        "loader": plain(loader.generator.get_state()),
        "sampler": getattr(loader.sampler, "epoch", None),
        "handlers": engine.attached,
    }


def places(optimizer):
    return [each.data_ptr() for state in optimizer.state.values() for each in state.values()]


def test_afterwards_everything_is_as_it_was_and_the_run_is_the_same(tmp_path):
    def train(folder, find):
        engine = build(tmp_path / folder)
        sampler = DistributedSampler(samples(), 1, 0)
        loader = DataLoader(
            samples(), 16, sampler=sampler, generator=torch.Generator().manual_seed(5)
        )
        sampler.set_epoch(7)
        seed()
        if find:
            before = look(engine, loader)
            assert len(find_lr(engine, loader, steps=30).rates) > 10
            assert look(engine, loader) == before
            assert not (tmp_path / folder).exists()  # no row and no checkpoint was written
        state = engine.run(loader, max_epochs=3)
        return look(engine, loader), dict(state.metrics), (tmp_path / folder / "rows").read_bytes()

    assert train("found", True) == train("plain", False)


def test_in_the_middle_of_training_too_it_leaves_moments_and_schedules(tmp_path):
    engine, loader = build(tmp_path), DataLoader(samples(), 16, generator=torch.Generator())
    seed()
    state = engine.run(loader, max_epochs=1)
    before = look(engine, loader)
    moments = places(engine.objects["optimizer"])
    find_lr(engine, loader, steps=20)
    assert look(engine, loader) == before
    assert places(engine.objects["optimizer"]) == moments  # the same tensors
    assert engine.run(loader, max_epochs=2, state=state).epoch == 2


@pytest.mark.quick(kind=1)
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("torchdata.stateful_dataloader.StatefulDataLoader", {}),
        ("torch.utils.data.DataLoader", {"num_workers": 1}),
        ("torch.utils.data.DataLoader", {"num_workers": 1, "persistent_workers": True}),
    ],
)
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # by torchdata
def test_every_loader_gives_the_same_batches_afterwards(kind, arguments):
    def train(find):
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        engine = supervised(model, torch.optim.Adam(model.parameters(), lr=0.01), cross_entropy)
        loader = pkgutil.resolve_name(kind)(samples(64), 8, shuffle=True, **arguments)
        if find:
            find_lr(engine, loader, steps=11)  # stops in the middle of the second pass
        engine.run(loader, max_epochs=2)
        return model.weight.tolist(), torch.get_rng_state().tolist()

    assert train(find=True) == train(find=False)


def test_after_an_error_everything_is_as_it_was_too(tmp_path):
    engine, loader = build(tmp_path), DataLoader(samples(), 16, generator=torch.Generator())
    model = engine.objects["model"]
    seed()
    before = look(engine, loader)

    def fail(module, arguments):
        if module.calls == 7:
            raise ValueError("bad batch")

    hook = model.register_forward_pre_hook(fail)
    with pytest.raises(ValueError, match="bad batch"):
        find_lr(engine, loader)
    hook.remove()
    assert look(engine, loader) == before


def test_the_steps_are_the_engines_own_with_accumulation_and_clipping():
    """By hand: windows of two micro-batches, clipped, at rates that grow by the same factor."""
    torch.manual_seed(0)
    data = [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(5)]

    def build():
        torch.manual_seed(1)
        model = nn.Linear(3, 1)
        return model, torch.optim.SGD(model.parameters(), lr=1.0)

    model, optimizer = build()
    engine = supervised(model, optimizer, mse_loss, accumulate=2)
    engine.add(ClipGradNorm(0.5))
    curve = find_lr(engine, data, start=1e-3, end=1e-1, steps=6, divergence=math.inf)

    twin, by_hand = build()
    windows = [data[0:2], data[2:4], data[4:5]] * 2  # the last of an epoch is a short one
    losses, rates = [], []
    for number, window in enumerate(windows):
        by_hand.zero_grad()
        of_window = [mse_loss(twin(x), y) for x, y in window]
        (sum(of_window) / len(window)).backward()
        nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
        rates.append(1e-3 * 100 ** (number / 5))
        by_hand.param_groups[0]["lr"] = rates[-1]
        by_hand.step()
        losses.append(sum(each.item() for each in of_window) / len(window))
    assert curve.rates == rates
    assert curve.losses == pytest.approx(losses, rel=1e-6)
    assert not curve.diverged


def test_parameter_groups_keep_their_ratios_and_the_largest_has_the_rate():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    groups = [{"params": model[0].parameters(), "lr": 1e-3}, {"params": model[1].parameters()}]
    optimizer = torch.optim.SGD(groups, lr=1e-2)
    engine = supervised(model, optimizer, mse_loss)
    seen = []

    @engine.on(Events.GRADIENTS_READY)  # takes part, since it could change the gradients
    def note(state):
        optimizer.register_step_post_hook(lambda *_: None).remove()
        seen.append([group["lr"] for group in optimizer.param_groups])

    data = [(torch.randn(4, 3), torch.randn(4, 1))]
    curve = find_lr(engine, data, start=1e-4, end=1e-2, steps=3)
    assert curve.rates == [1e-4, 1e-3, 1e-2]
    assert seen[1:] == [[1e-5, 1e-4], [1e-4, 1e-3]]  # as the step before has left them
    assert [group["lr"] for group in optimizer.param_groups] == [1e-3, 1e-2]


def test_it_stops_where_the_loss_diverges_and_suggests_a_rate_before():
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    engine = supervised(model, torch.optim.SGD(model.parameters(), lr=1.0), mse_loss)
    engine.add(SpikeGuard(window=5, deviations=0.1))  # would skip where the loss grows
    inputs = torch.randn(64, 3)
    data = [(inputs, inputs.sum(1, keepdim=True))]
    curve = find_lr(engine, data, start=1e-4, end=1e4, steps=200)
    assert curve.diverged
    assert len(curve.rates) < 180
    assert curve.rates == [1e-4 * 1e8 ** (n / 199) for n in range(len(curve.rates))]
    assert 1e-3 < curve.suggestion < 1  # SGD on this parabola diverges above 1
    assert 1e-3 < curve.steepest < 1
    assert curve.rows[0] == {"lr": 1e-4, "loss": curve.losses[0], "smoothed": curve.losses[0]}


@pytest.mark.parametrize("policy", [None, "raise", "stop", "skip"])
def test_a_loss_that_is_not_finite_ends_the_test_whatever_the_guard(policy):
    model = nn.Linear(1, 1)
    engine = supervised(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        lambda prediction, target: prediction.mean() * target,
    )
    if policy:
        engine.add(NonFiniteGuard(policy))
    batches = [(torch.ones(2, 1), torch.tensor(1.0))] * 5 + [
        (torch.ones(2, 1), torch.tensor(math.nan))
    ]
    before = model.weight.item()
    curve = find_lr(engine, batches, start=1e-7, end=1e-5)
    assert curve.diverged
    assert len(curve.rates) == 5
    assert model.weight.item() == before


def test_a_step_of_ones_own_by_any_optimizer_and_any_loss():
    class Own(EventEnum):
        CRITIC = "critic"

    critic, other = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
    others = torch.optim.Adam(other.parameters(), lr=1e-3)
    update, update_other = Update(optimizer, event=Own.CRITIC), Update(others)
    rates = []

    def step(state, batch):
        loss = critic(batch).square().mean()
        update(state, loss)
        rates.append((optimizer.param_groups[0]["lr"], others.param_groups[0]["lr"]))
        if state.iteration % 2 == 0:
            update_other(state, other(batch).square().mean())
        return {"critic": loss.detach()}

    objects = {"critic": critic, "other": other, "other_optimizer": others, "optimizer": optimizer}
    engine = Engine(step, objects=objects)
    data = [torch.randn(4, 2) for _ in range(3)]
    curve = find_lr(engine, data, steps=8, start=1e-4, end=1e-3, loss="critic", optimizer=optimizer)
    assert len(curve.rates) == 8
    assert rates == [(rate, 1e-3) for rate in curve.rates]
    assert (optimizer.state, others.state) == ({}, {})


def test_the_state_inside_a_wrapper_of_an_optimizer_is_as_before():
    class Wrapper(torch.optim.Optimizer):
        """As of accelerate: the state is that of the optimizer inside."""

        state = property(lambda self: self.inner.state)
        param_groups = property(lambda self: self.inner.param_groups)
        defaults = property(lambda self: self.inner.defaults)

        def __init__(self, inner):
            self.inner = inner

        def step(self):
            self.inner.step()

        def register_step_pre_hook(self, hook):
            return self.inner.register_step_pre_hook(hook)

        def register_step_post_hook(self, hook):
            return self.inner.register_step_post_hook(hook)

    model = nn.Linear(2, 1)
    optimizer = Wrapper(torch.optim.Adam(model.parameters(), lr=1e-3))

    def step(state, batch):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    engine = Engine(step, objects={"model": model, "optimizer": optimizer})
    engine.run([torch.randn(4, 2)], max_epochs=1)
    before = plain(optimizer.inner.state_dict())
    assert len(find_lr(engine, [torch.randn(4, 2)], steps=3).rates) == 3
    assert plain(optimizer.inner.state_dict()) == before


def test_a_hand_written_step_without_events_and_a_loss_by_a_function():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(state, batch):
        loss = model(batch).square().mean()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        return [loss.item()]

    engine = Engine(step, objects={"model": model, "optimizer": optimizer})
    model.weight.grad = torch.full((1, 2), 3.0)
    curve = find_lr(engine, [torch.randn(4, 2)], steps=5, loss=lambda state: state.output[0])
    assert len(curve.rates) == 5
    assert model.weight.grad.tolist() == [[3.0, 3.0]]
    assert model.bias.grad is None


def test_an_output_that_is_the_loss_needs_no_name():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    update = Update(optimizer)

    def step(state, batch):
        loss = model(batch).square().mean()
        update(state, loss)
        return loss.detach()

    engine = Engine(step, update, objects={"model": model, "optimizer": optimizer})
    assert len(find_lr(engine, [torch.randn(4, 2)], steps=3).losses) == 3


def test_float16_steps_that_are_skipped_leave_gaps_and_the_scaler_as_it_was():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)  # overflows until it has fallen
    engine = supervised(model, Update(optimizer, scaler=scaler), mse_loss, precision="fp16")
    before = plain(vars(scaler))
    data = [(torch.randn(8, 4), torch.randn(8, 1))]
    curve = find_lr(engine, data, start=1e-6, end=1e-2, steps=60)
    assert 10 < len(curve.rates) < 60
    assert curve.rates[0] > 1e-6
    assert plain(vars(scaler)) == before


def test_mistakes_are_told():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    engine = supervised(model, optimizer, mse_loss)
    data = [(torch.ones(1, 2), torch.ones(1, 1))]
    with pytest.raises(TypeError, match="gives each batch once"):
        find_lr(engine, iter(data))
    with pytest.raises(ValueError, match="needs rates above 0, the larger one as end="):
        find_lr(engine, data, start=1.0, end=0.1)
    with pytest.raises(ValueError, match="steps=1"):
        find_lr(engine, data, steps=1)
    with pytest.raises(LookupError, match="no 'nll' in the metrics"):
        find_lr(engine, data, loss="nll")
    with pytest.raises(ValueError, match="the loss is not finite from the first step on"):
        find_lr(engine, [(torch.full((1, 2), math.nan), torch.ones(1, 1))])
    with pytest.raises(ValueError, match="knows no module"):
        find_lr(Engine(lambda state, batch: batch, objects={"optimizer": optimizer}), data)
    gan = Engine(
        lambda state, batch: batch, objects={"model": model, "critic_optimizer": optimizer}
    )
    with pytest.raises(ValueError, match="pass optimizer=.*'critic_optimizer'"):
        find_lr(gan, data)
    with pytest.raises(RuntimeError, match="an epoch made no step of the SGD"):
        find_lr(gan, data, optimizer=optimizer)
    flat = LRCurve(rates=[0.1, 0.2, 0.3], losses=[1.0, 2.0, 3.0], diverged=True)
    with pytest.raises(ValueError, match="the loss did not fall in 3 steps"):
        _ = flat.suggestion


def test_the_curve_is_drawn(tmp_path):
    curve = LRCurve([10.0**n for n in range(-7, 1)], [3.0, 3.0, 2.5, 2.0, 1.0, 0.5, 2.0, 9.0], True)
    figure = curve.figure()
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    assert [line.get_label() for line in axes.lines] == [
        "loss",
        "smoothed",
        f"{curve.suggestion:.2g}",
    ]
    figure.savefig(tmp_path / "lr.png")
    assert (tmp_path / "lr.png").stat().st_size > 5000


def test_a_notebook_shows_the_curve():
    curve = LRCurve(rates=[1e-3, 1e-2, 1e-1], losses=[2.0, 1.0, 3.0], diverged=True)
    assert "</svg>" in curve._repr_svg_()
