"""A step is computed twice, the bits are compared, and the run is the one without the handler."""

import json
import logging
import random
import sys
from collections import Counter
from io import StringIO
from pathlib import Path
from shelve import Shelf

import pytest
import torch
from torch import nn
from torch.amp import GradScaler
from torch.nn.functional import mse_loss
from torchmetrics import MeanMetric

from camshaft import Engine, EventEnum, Events, Update, supervised
from camshaft.handlers import (
    EMA,
    Checkpoint,
    ClipGradNorm,
    JSONLines,
    LRSchedule,
    NonFiniteGuard,
    ReplayCheck,
)

DATA = [(torch.randn(6, 4), torch.randn(6, 1)) for _ in range(7)]
SEEN = []


class Extra(EventEnum):
    LOOKED = "looked"


class Copied:
    """Gives each batch anew, since a step may write into it."""

    def __len__(self):
        return len(DATA)

    def __iter__(self):
        return ((x.clone(), y.clone()) for x, y in DATA)


class Net(nn.Module):
    """Has what a pass changes: buffers, modes, counters, a generator and tables of its own."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(3, 4, max_norm=0.5)
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3))
        self.head = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 1))
        self.noise = torch.Generator().manual_seed(1)
        self.calls, self.table, self.sums = 0, [], torch.zeros(1)

    def forward(self, x):
        self.calls += 1
        self.table.append(float(x.sum()))
        self.sums += x.mean()
        rows = torch.randint(3, (len(x),), generator=self.noise)
        return self.head(self.body(x + self.embed(rows) * random.random()))


class Loss(nn.Module):
    """Weighs by what it has seen, and no checkpoint holds it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(()))
        self.calls = 0

    def forward(self, prediction, target):
        self.calls += 1
        loss = mse_loss(prediction, target)
        self.mean.mul_(0.9).add_(loss.detach(), alpha=0.1)
        return loss / self.mean


def everything(engine, model, optimizer, state):
    return [
        [e.clone() for e in (*model.state_dict().values(), model.sums)],
        [model.calls, list(model.table), random.random(), torch.rand(1)],
        [v.clone() for each in optimizer.state.values() for v in each.values()],
        [dict(state.metrics), state.metrics.writes, state.step, state.counts[Extra.LOOKED]],
        model.noise.get_state(),
    ]


def train(*handlers, weight=None, data=DATA, given=None, **arguments):
    torch.manual_seed(0)
    random.seed(0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    loss = Loss()
    engine = supervised(model, optimizer, loss, weight=weight, **arguments)
    engine.add(ClipGradNorm(1.0), EMA(0.9), NonFiniteGuard())
    engine.add(LRSchedule(torch.optim.lr_scheduler.StepLR(optimizer, 2)), *handlers)
    state = engine.run(data, max_epochs=2, state=given)
    return everything(engine, model, optimizer, state), loss.calls, loss.mean


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"accumulate": 3},
        {"precision": "bf16", "accumulate": 2},
        {"split": 4},
        {"weight": lambda output: len(output.target)},
    ],
    ids=lambda each: "-".join(each) or "plain",
)
def test_a_run_with_checks_is_the_run_without_them_to_the_last_bit(arguments):
    assert same(train(ReplayCheck(every=2), **arguments), train(**arguments))


def own_step(tmp_path, *handlers, scaler=None, max_iterations=14, resume=False, accumulate=1):
    """A step that changes what it likes; all that it has changed in the end, and its rows."""
    torch.manual_seed(0)
    random.seed(0)
    tmp_path.mkdir(exist_ok=True)
    model, teacher, kept = Net(), nn.BatchNorm1d(4, affine=False), {"best": 9.0, "last": None}
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    update = Update(optimizer, scaler=scaler, accumulate=accumulate)
    average, target = (
        nn.Linear(1, 8).requires_grad_(False),
        model.head.parametrizations.weight.original,
    )
    draws, losses, total, heard = random.Random(3), [], torch.zeros(()), []
    mean = MeanMetric()

    def step(state, batch):
        nonlocal total
        memory = state.recall(step, lambda: {"seen": 0, "sum": torch.zeros(())})
        memory["seen"] += 1
        inputs, targets = batch
        inputs.mul_(1.5)  # in place
        loss = mse_loss(model(teacher(inputs)), targets) * (1 + draws.random())
        memory["sum"] += loss.detach()
        state.metrics["loss"] = loss
        update(state, loss)
        losses.append(loss.item())
        mean.update(loss.detach())
        with torch.no_grad():  # weights that are in no checkpoint, and those that are trained
            average.weight.lerp_(target.reshape(8, 1), 0.1)
            model.head.bias.data.clamp_(-0.1, 0.1)
        kept["best"], kept["last"] = min(kept["best"], losses[-1]), loss.detach()
        total = total + loss.detach()
        state.fire(Extra.LOOKED)
        return {"loss": loss.detach(), "memory": dict(memory)}

    objects = {"model": model, "optimizer": optimizer, "teacher": teacher}
    if resume:
        objects |= {"average": average, "mean": mean}
    engine = Engine(step, *handlers, objects=objects)
    engine.on(Extra.LOOKED)(lambda state: heard.append(state.iteration))
    engine.add(JSONLines(tmp_path / "rows.jsonl", when=Events.ITERATION_COMPLETED))
    if resume:
        engine.add(Checkpoint(tmp_path, when=Events.ITERATION_COMPLETED(every=5), resume=True))
    state = engine.run(Copied(), max_iterations=max_iterations)
    rows = (tmp_path / "rows.jsonl").read_text().splitlines()
    rows = [{k: v for k, v in json.loads(row).items() if k != "time"} for row in rows]
    scale = scaler and (scaler.get_scale(), scaler.state_dict())
    own = [
        average.weight,
        heard,
        losses,
        kept,
        total,
        draws.random(),
        rows,
        scale,
        teacher.state_dict(),
        mean.compute(),
        state.output,
    ]
    return everything(engine, model, optimizer, state), own


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("scale", [None, 2.0**10, 2.0**127], ids=str)
def test_what_a_step_of_ones_own_changes_is_changed_once(tmp_path, scale, accumulate):
    def scaler():
        return scale and GradScaler("cpu", init_scale=scale, growth_interval=3)

    one = own_step(tmp_path / "one", scaler=scaler(), accumulate=accumulate)
    two = own_step(tmp_path / "two", ReplayCheck(every=2), scaler=scaler(), accumulate=accumulate)
    assert same(one, two)
    assert two[1][1] == [*range(1, 15)]


def test_a_resumed_run_checks_the_same_iterations_and_stays_the_same(tmp_path):
    whole = own_step(tmp_path / "whole", ReplayCheck(every=3), resume=True)
    own_step(tmp_path / "cut", ReplayCheck(every=3), resume=True, max_iterations=8)
    resumed = own_step(tmp_path / "cut", ReplayCheck(every=3), resume=True)
    assert same(whole[0][0], resumed[0][0])
    assert same(whole[0][2:], resumed[0][2:])
    assert same(whole[1][6], resumed[1][6])


def calls_by_iteration(*handlers):
    """The calls of Python and of C in each iteration, and how often the model was called."""
    model = nn.Linear(4, 1)
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), mse_loss)
    counts, forwards = Counter(), StringIO()  # which no second pass takes back
    engine.add(*handlers)
    state = None

    def count(frame, event, argument):
        if event in ("call", "c_call") and state is not None:
            counts[state.iteration] += 1

    @engine.on(Events.STARTED)
    def begin(started):
        nonlocal state
        state = started

    model.register_forward_hook(lambda *_: forwards.write(f"{state.iteration} ") and None)
    sys.setprofile(count)
    try:
        engine.run(DATA, max_epochs=4)
    finally:
        sys.setprofile(None)
    assert all(each._backward_hooks is None for each in model.parameters())
    return counts, Counter(map(int, forwards.getvalue().split()))


def test_other_iterations_cost_nothing():
    calls_by_iteration()  # what a process does once
    calls, forwards = calls_by_iteration(ReplayCheck(every=25))
    usual, once = calls_by_iteration()
    assert {n for n, count in forwards.items() if count == 2} == {25}
    assert set(once.values()) == {1}
    # After an epoch began, and after a check, the moments of a step look for their receivers.
    steady = {10, 11, 12, 13, 14, 24, 27}
    assert {n: calls[n] for n in steady} == {n: usual[n] for n in steady}
    assert calls[25] > 2 * usual[25]


class Flips(torch.autograd.Function):
    """Changes one bit in one of the calls, of the forward or of the backward pass."""

    calls, at, where = Shelf({}), 0, "backward"  # a second pass takes no Shelf back

    @classmethod
    def may_flip(cls, where, value):
        cls.calls[where] += 1
        value = value.clone()
        if (cls.where, cls.at) in ((where, cls.calls[where]), (where, -1)):
            factor = 1 + 1e-3 * cls.calls[where]
            value.view(-1)[0] *= factor
        return value

    @staticmethod
    def forward(ctx, x):
        return Flips.may_flip("forward", x)

    @staticmethod
    def backward(ctx, g):
        return Flips.may_flip("backward", g)


def faulty(where, at, **arguments):
    Flips.where, Flips.at = where, at
    Flips.calls.update(forward=0, backward=0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    model[1].register_forward_hook(lambda module, given, made: Flips.apply(made))
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), mse_loss)
    engine.add(ReplayCheck(every=5, **arguments))
    steps = []
    engine.on(Events.STEP_COMPLETED)(lambda state: steps.append(state.iteration))
    return engine, steps


@pytest.mark.parametrize(
    ("where", "first"),
    [("forward", "in the loss, float32[]"), ("backward", "in the gradient of 0.bias, float32[4]")],
)
def test_one_other_bit_ends_the_run_before_the_step_and_the_first_tensor_is_named(where, first):
    for at in (5, 6):  # the first and the second pass of iteration 5
        engine, steps = faulty(where, at)
        with pytest.raises(RuntimeError, match="computed twice") as raised:
            engine.run(DATA, max_epochs=2)
        assert first in str(raised.value)
        assert "rank 0 on " in str(raised.value)
        assert steps == [1, 2, 3, 4]


def test_a_kernel_that_is_not_deterministic_is_found_in_the_first_check():
    engine, steps = faulty("backward", -1)
    with pytest.raises(RuntimeError, match=r"iteration 5 .*use_deterministic_algorithms"):
        engine.run(DATA, max_epochs=2)
    assert steps == [1, 2, 3, 4]


def test_a_difference_may_be_told_of_and_the_run_goes_on(caplog):
    engine, steps = faulty("forward", 6, on_difference="warn")
    with caplog.at_level(logging.WARNING):
        engine.run(DATA, max_epochs=2)
    assert len(steps) == 14
    (told,) = [each.getMessage() for each in caplog.records]
    assert "iteration 5 was computed twice" in told


def test_an_error_of_the_step_leaves_no_hook_behind():
    model = nn.Linear(4, 1)
    calls = []

    def loss_fn(prediction, target):
        calls.append(1)
        if len(calls) == 3:  # the second pass of iteration 2
            raise ValueError("no loss")
        return mse_loss(prediction, target)

    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), loss_fn)
    engine.add(ReplayCheck(every=2))
    with pytest.raises(ValueError, match="no loss"):
        engine.run(DATA, max_epochs=1)
    assert all(each._backward_hooks is None for each in model.parameters())
    assert engine.run(DATA, max_epochs=1).step == 7


def with_step(make):
    """An engine with a step of one's own, made of a model and an update."""

    def build():
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step = make(model, optimizer, Update(optimizer))
        return Engine(step, objects={"model": model, "optimizer": optimizer})

    return build


def loss_of(model, batch):
    return mse_loss(model(batch[0]), batch[1])


def test_gradients_that_other_code_leaves_are_still_refused_in_a_checked_iteration():
    model = nn.Linear(4, 1)
    update = Update(torch.optim.SGD(model.parameters(), 0.1))

    def step(state, batch):
        if state.iteration == 4:
            model.bias.sum().backward()
        update(state, mse_loss(model(batch[0]), batch[1]))

    engine = Engine(step, update, ReplayCheck(every=4), objects={"model": model})
    with pytest.raises(RuntimeError, match="a backward pass by hand has left gradients"):
        engine.run(DATA, max_epochs=1)


@with_step
def by_hand(model, optimizer, update):
    def step(state, batch):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        state.fire(Events.STEP_COMPLETED)

    return step


@with_step
def by_hand_beside_an_update(model, optimizer, update):
    other = torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1)

    def step(state, batch):
        update(state, loss_of(model, batch))
        other.step()

    return step


@with_step
def of_two_updates(model, optimizer, update):
    other = Update(torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1))

    def step(state, batch):
        (other if state.iteration % 2 else update)(state, loss_of(model, batch))

    return step


@with_step
def of_two_steps(model, optimizer, update):
    def step(state, batch):
        update(state, loss_of(model, batch))
        update(state, loss_of(model, batch))

    return step


@with_step
def of_own_data(model, optimizer, update):
    more = iter(DATA * 5)

    def step(state, batch):
        update(state, loss_of(model, next(more)))

    return step


@with_step
def of_a_large_sum(model, optimizer, update):
    total = torch.zeros(2**22 + 1)

    def step(state, batch):
        total.add_(1)
        update(state, loss_of(model, batch))

    return step


@with_step
def of_a_large_store(model, optimizer, update):
    store = [torch.zeros(2**22 + 1)]

    def step(state, batch):
        store.append(torch.ones(1))
        update(state, loss_of(model, batch) * len(store))

    return step


def compiled():
    model = nn.Linear(4, 1)
    return supervised(
        model, torch.optim.SGD(model.parameters(), 0.1), mse_loss, compile={"backend": "eager"}
    )


EARLY = [
    (by_hand, "this engine has no Update"),
    (of_two_updates, "this engine has 2 Updates"),
    (of_own_data, "may read more, an iterator"),
    (compiled, "a compiled step"),
]
LATE = [
    (by_hand_beside_an_update, r"calls step\(\) of SGD itself"),
    (of_two_steps, "several steps in one iteration"),
    (of_a_large_sum, "changed total, which cannot be put back"),
    (of_a_large_store, "changed store, which cannot be put back"),
]


@pytest.mark.parametrize(("build", "why"), EARLY, ids=[why for _, why in EARLY])
def test_a_run_whose_second_pass_would_not_be_exact_is_refused_at_the_start(build, why):
    engine = build()
    engine.add(ReplayCheck(every=3))
    with pytest.raises(ValueError, match=why):
        engine.run(DATA, max_epochs=1)


@pytest.mark.parametrize(("build", "why"), LATE, ids=[why for _, why in LATE])
def test_what_cannot_be_done_twice_is_refused_in_the_first_check(build, why):
    engine, made = build(), []
    engine.add(ReplayCheck(every=3))
    engine.on(Events.ITERATION_COMPLETED)(lambda state: made.append(state.iteration))
    with pytest.raises(RuntimeError, match=why):
        engine.run(DATA, max_epochs=1)
    assert made == [1, 2]


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="needs 'raise' or 'warn'"):
        ReplayCheck(on_difference="retry")


@pytest.mark.slow
def test_on_two_ranks_runs_are_the_same_and_the_faulty_rank_is_named(processes, tmp_path):
    script = Path(__file__).with_name("check_on_ranks.py")
    processes.run_ranks(2, script, tmp_path)
    for rank in (0, 1):
        found = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        assert found["same"] == {"ddp": True, "ddp accumulating": True, "fsdp": True}
        for where in ("the loss", "the gradient of 1.weight"):
            assert "rank 1 on " in found["faults"][where]
            assert "rank 0 on " not in found["faults"][where]
            assert f", in {where}, " in found["faults"][where]
        assert "open accumulation window" in found["refused"]
