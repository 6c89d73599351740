"""A guard that keeps NaN out of the weights."""

import math
from pathlib import Path

import pytest
import torch

from camshaft import Engine, EventEnum, Events, Update, supervised
from camshaft.handlers import (
    EMA,
    Average,
    Checkpoint,
    ClipGradNorm,
    Metrics,
    NonFiniteGuard,
    RestoreBest,
)
from camshaft.handlers.checkpoint import checkpoints

NAN = float("nan")


class Net(torch.nn.Module):
    """One weight, and a buffer that a bad batch spoils."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(1.0))
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x):
        self.mean.mul_(0.5).add_(0.5 * x)
        return self.weight * x


class Own(EventEnum):
    STEPPED = "stepped"


def build(guard, kind=torch.optim.SGD, update=(), **options):
    model = Net()
    optimizer = kind(model.parameters(), lr=0.125, **options)
    update, rows = Update(optimizer, **dict(update)), []

    def process(state, x):
        loss = model(torch.tensor(x))
        state.metrics["loss"] = loss.detach()
        update(state, loss)
        return loss.detach()

    engine = Engine(process, guard, objects={"model": model, "optimizer": optimizer})
    engine.on(Events.ITERATION_COMPLETED)(
        lambda state: rows.append((state.step, float(state.metrics["loss"])))
    )
    return engine, model, rows


FUSED = [{}, {"fused": True}]


@pytest.mark.parametrize("options", FUSED, ids=["plain", "fused"])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("every", [1, 3, 50])
def test_raise_names_the_first_bad_step_and_leaves_weights_and_buffers_alone(options, kind, every):
    engine, model, _ = build(NonFiniteGuard("raise", every=every), kind, **options)
    good, expected, _ = build(NonFiniteGuard("raise"), kind, **options)
    good.run([1.0, 2.0], max_epochs=1)
    with pytest.raises(FloatingPointError, match="loss of step 3 are not finite"):
        engine.run([1.0, 2.0, NAN, 1.0, 1.0], max_epochs=1)
    assert torch.equal(model.weight, expected.weight)
    assert torch.equal(model.mean, expected.mean)
    optimizer = engine.objects["optimizer"]
    assert not hasattr(optimizer, "found_inf")  # another run may use it


@pytest.mark.parametrize("options", FUSED, ids=["plain", "fused"])
def test_nothing_is_saved_after_a_bad_step(options):
    engine, _, _ = build(NonFiniteGuard("raise"), **options)
    saved = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: state.save("each"))
    engine.on(Events.SAVING)(lambda state: saved.append(state.iteration))
    with pytest.raises(FloatingPointError):
        engine.run([1.0, 2.0, NAN, 1.0, 1.0], max_epochs=1)
    assert saved == [1, 2]


@pytest.mark.parametrize("options", FUSED, ids=["plain", "fused"])
def test_stop_ends_the_run_for_good_with_what_is_due_at_its_end(options):
    engine, model, _ = build(NonFiniteGuard("stop", every=2), **options)
    completed = []
    engine.on(Events.COMPLETED)(lambda state: completed.append(state.iteration))
    state = engine.run([1.0, 2.0, NAN, 1.0, 1.0, 1.0], max_epochs=1)
    assert state.stop_reason == "step 3 was not finite"
    assert not state.is_interrupted
    assert completed == [state.iteration]
    assert state.iteration == (4 if options else 3)
    assert model.weight.item() == 1.0 - 3 * 0.125
    assert model.mean.item() == 1.25


def test_skip_makes_the_step_with_the_next_batch_and_nan_stays_in_the_log():
    engine, model, rows = build(NonFiniteGuard("skip"))
    seen = []
    for event in (Events.GRADIENTS_READY, Events.STEP_COMPLETED, Events.STEP_SKIPPED):
        engine.on(event)(lambda state, e=event: seen.append((e.name, state.iteration)))
    state = engine.run([1.0, NAN, 2.0], max_epochs=1)
    assert model.weight.item() == 1.0 - 3 * 0.125
    assert model.mean.item() == 0.5 * 0.5 + 0.5 * 2.0
    assert [step for step, _ in rows] == [1, 1, 2]
    assert math.isnan(rows[1][1])
    assert state.metrics["skipped_steps"] == state.counts[Events.STEP_SKIPPED] == 1
    assert seen == [
        *(("GRADIENTS_READY", 1), ("STEP_COMPLETED", 1)),
        ("STEP_SKIPPED", 2),
        *(("GRADIENTS_READY", 3), ("STEP_COMPLETED", 3)),
    ]


def test_a_whole_window_is_discarded_with_its_bad_micro_batch():
    engine, model, _ = build(NonFiniteGuard("skip"), update={"accumulate": 2})
    state = engine.run([1.0, 3.0, NAN, 5.0, 7.0, 9.0, 4.0], max_epochs=1)
    assert state.step == 3
    assert model.weight.item() == 1.0 - (2.0 + 8.0 + 4.0) * 0.125


def test_retry_gives_up_after_so_many_windows_in_a_row():
    engine, _, _ = build(NonFiniteGuard("retry", limit=2))
    state = engine.run([1.0, NAN, NAN, 2.0, NAN, NAN, 3.0], max_epochs=1)
    assert (state.step, state.counts[Events.STEP_SKIPPED]) == (3, 4)
    engine, _, _ = build(NonFiniteGuard("retry", limit=2))
    with pytest.raises(FloatingPointError, match=r"step 2 are not finite \(3 times in a row\)"):
        engine.run([1.0, NAN, NAN, NAN, 2.0], max_epochs=1)


def test_steps_are_counted_as_performed_so_max_steps_takes_more_batches():
    engine, _, _ = build(NonFiniteGuard("retry"))
    state = engine.run([1.0, NAN, 2.0, NAN, 3.0, 4.0], max_steps=3)
    assert (state.iteration, state.step) == (5, 3)


def test_an_infinite_loss_whose_gradients_are_finite_is_judged_too():
    weight = torch.nn.Parameter(torch.tensor(1.0))
    update = Update(torch.optim.SGD([weight], lr=1.0))

    def process(state, x):
        loss = weight * 1.0 + x
        state.metrics["loss"] = loss.detach()
        update(state, loss)

    data = [0.0, float("inf"), 0.0]
    assert Engine(process, NonFiniteGuard("skip")).run(data, max_epochs=1).step == 2
    assert Engine(process, NonFiniteGuard("skip", metric=None)).run(data, max_epochs=1).step == 3


def test_a_loss_that_is_written_after_the_step_is_not_judged_twice():
    weight = torch.nn.Parameter(torch.tensor(1.0))
    update = Update(torch.optim.SGD([weight], lr=1.0))

    def process(state, x):
        if x == x:
            update(state, weight * 1.0)
        if state.iteration == 1:
            state.metrics["loss"] = NAN

    state = Engine(process, NonFiniteGuard("skip")).run([1.0, 1.0, 1.0], max_epochs=1)
    assert state.step == 2


def test_metrics_of_the_epoch_are_not_poisoned():
    class Mean:
        def reset(self):
            self.values = []

        def update(self, value):
            self.values.append(value)

        def compute(self):
            return sum(self.values) / len(self.values)

    engine, _, _ = build(NonFiniteGuard("skip"))
    engine.add(Metrics({"mean": Mean()}, select=lambda output: output))
    assert engine.run([1.0, NAN, 1.0], max_epochs=1).metrics["mean"] == pytest.approx(0.9375)


@pytest.mark.parametrize(
    ("kind", "expected"), [({}, 1.375), ({"over": 3}, 1.375), ({"decay": 0.5}, 1.5)]
)
def test_averages_of_the_loss_are_not_poisoned_and_the_loss_itself_stays_nan(kind, expected):
    engine, _, rows = build(NonFiniteGuard("skip"))
    engine.add(Average("loss", weight=1, **kind))
    metrics = engine.run([1.0, 2.0, NAN], max_epochs=1).metrics
    assert math.isnan(rows[2][1])
    averages = [value for name, value in metrics.items() if name.startswith("loss/")]
    assert [float(value) for value in averages] == [expected]


class Reads(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts what `item()`, `float()`, `bool()` and `int()` of a tensor come down to."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket
        self.count += name in (torch.ops.aten._local_scalar_dense, torch.ops.aten.equal)
        return function(*args, **(kwargs or {}))


def reads(guard, steps, **options):
    weight = torch.nn.Parameter(torch.tensor(1.0))
    update = Update(torch.optim.SGD([weight], lr=0.1, **options))

    def process(state, x):
        loss = weight * x
        state.metrics["loss"] = loss.detach()
        update(state, loss)

    engine = Engine(process, *([guard] if guard else []))
    with Reads() as counted:
        engine.run([torch.tensor(1.0)] * steps, max_epochs=1)
    return counted.count


def test_the_device_is_read_once_a_step_or_once_in_every_so_many():
    assert reads(None, 40) == 0
    assert reads(NonFiniteGuard("skip"), 40) == 40
    assert reads(NonFiniteGuard("raise"), 40) == 40
    for policy in ("raise", "stop"):
        assert reads(NonFiniteGuard(policy, every=10), 40, fused=True) == 4 + 1  # and at the end
        assert reads(NonFiniteGuard(policy, every=10), 80, fused=True) == 8 + 1


def test_large_gradients_are_finite_though_their_norm_is_not():
    engine, model, _ = build(NonFiniteGuard("raise"))
    engine.run([1e30, 1.0], max_epochs=1)  # the norm is finite, its square is not
    assert float(model.weight.detach()) < -1e29


@pytest.mark.parametrize("kind", [0.0, float("-inf"), 0.5, 1.0, float("inf")])
def test_a_norm_that_hides_nan_decides_nothing(kind):
    engine, model, _ = build(NonFiniteGuard("skip"))
    engine.add(ClipGradNorm(1.0, norm_type=kind)).run([1.0, NAN, float("inf")], max_epochs=1)
    assert engine.objects["model"].weight.isfinite()
    assert float(model.weight.detach()) != 1


def test_how_often_in_a_row_is_remembered_with_the_run():
    engine, _, _ = build(NonFiniteGuard("retry", limit=2))
    state = engine.run([1.0, NAN, NAN], max_epochs=1)
    assert state.state_dict()["memory"]["NonFiniteGuard(loss)"]["in_a_row"] == 2
    engine, _, _ = build(NonFiniteGuard("retry", limit=2))
    with pytest.raises(FloatingPointError, match="3 times in a row"):
        engine.run([NAN], max_epochs=2, state=state)


@pytest.mark.parametrize("policy", ["skip", "raise"])
def test_a_run_that_is_resumed_judges_as_if_nobody_had_interrupted_it(policy, tmp_path):
    def run(directory, iterations):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.125, fused=policy == "raise")
        update = Update(optimizer)

        def process(state, x):
            loss = model(torch.tensor(x))
            update(state, loss)
            state.metrics["loss"] = loss.detach()  # after the step: judged with the next one

        save = Checkpoint(directory, when=Events.ITERATION_COMPLETED(every=2), resume=True)
        guard = NonFiniteGuard(policy, every=3)
        objects = {"model": model, "optimizer": optimizer}
        engine = Engine(process, guard, save, objects=objects)
        state = engine.run(data, max_iterations=iterations)
        return model.weight.item(), model.mean.item(), state.step, state.metrics["loss"].item()

    data = [1.0, NAN, 2.0, 3.0, 4.0] if policy == "skip" else [1.0, 2.0, 3.0, 4.0, 5.0]
    whole = run(tmp_path / "whole", 5)
    run(tmp_path / "parts", 2)
    assert run(tmp_path / "parts", 5) == whole


def test_a_discarded_step_leaves_the_buffers_of_averages_and_of_best_weights_alone():
    def run(data):
        guard = NonFiniteGuard("skip")
        engine, _, _ = build(guard)
        engine.add(EMA(0.5), RestoreBest("loss", mode="max", when=Events.STEP_COMPLETED))
        engine.run(data, max_epochs=1)
        return [engine.objects[name].mean.item() for name in ("model", "ema", "best")]

    assert run([1.0, 2.0, 4.0, NAN]) == run([1.0, 2.0, 4.0])


def test_buffers_go_back_by_one_step_where_no_update_counts_the_runs_steps_too():
    def run(data):
        engine, model, _ = build(NonFiniteGuard("skip"), update={"event": Own.STEPPED})
        engine.run(data, max_epochs=1)
        return model.mean.item()

    assert run([1.0, 2.0, NAN]) == run([1.0, 2.0])


def test_what_a_scaler_discards_leaves_the_buffers_as_they_were():
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    engine, model, _ = build(NonFiniteGuard("skip"), update={"scaler": scaler})
    state = engine.run([1.0, NAN, 3.0], max_epochs=1)
    assert (state.step, state.counts[Events.STEP_SKIPPED]) == (2, 1)
    assert model.mean.item() == 0.5 * 0.5 + 0.5 * 3.0


def test_a_run_that_is_interrupted_before_the_next_look_ends_with_the_error():
    engine, _, _ = build(NonFiniteGuard("raise"), fused=True)
    engine.on(Events.ITERATION_COMPLETED(at=3))(lambda state: state.interrupt("elsewhere"))
    with pytest.raises(FloatingPointError, match="step 2 are not finite"):
        engine.run([1.0, NAN, 1.0, 1.0], max_epochs=1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"policy": "ignore"}, "needs one of 'raise', 'stop', 'skip', 'retry'"),
        ({"policy": "raise", "limit": 2}, "the policy 'skip' or 'retry'"),
        ({"policy": "retry", "limit": 0}, "needs a number from 1"),
        ({"every": 0}, "needs a number from 1"),
        ({"policy": "skip", "late": True}, "needs the policy 'raise'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        NonFiniteGuard(**arguments)


def test_a_late_guard_spares_each_step_the_look_and_lets_no_bad_weights_be_saved(tmp_path):
    engine, model, rows = build(NonFiniteGuard("raise", late=True))
    engine.add(Checkpoint(tmp_path, when=Events.ITERATION_COMPLETED(at=[2, 5])))
    with pytest.raises(FloatingPointError, match="step 3 were not finite.* iteration 5, and its"):
        engine.run([1.0, 2.0, NAN, 1.0, 1.0, 1.0], max_epochs=1)
    assert len(rows) == 5
    assert math.isnan(model.weight.item())
    assert [each.manifest.iteration for each in checkpoints(tmp_path)] == [2]


@pytest.mark.quick(kind=1)
@pytest.mark.parametrize("kind", ["plain", "fused"])
def test_nan_on_one_rank_ends_both_with_the_number_of_the_step_and_of_the_rank(processes, kind):
    script = Path(__file__).with_name("nan_on_one_rank.py")
    for result in processes.run_ranks(2, script, kind, code=1):
        assert "weights are finite: True" in result.stdout
        says = "FloatingPointError: the gradients or the loss of step 3 are not finite (the loss of"
        assert f"{says} rank 1); the run is in iteration" in result.stderr


def test_a_fused_optimizer_with_a_clock_of_its_own_is_looked_at_as_often():
    guard = NonFiniteGuard("raise", every=5)
    engine, _, _ = build(guard, update={"event": Own.STEPPED}, fused=True)
    with pytest.raises(FloatingPointError, match="of step 3 are .*; the run is in iteration 5 "):
        engine.run([1.0, 2.0, NAN, *[1.0] * 17], max_epochs=1)


def test_counts_in_the_models_buffers_go_back_too():
    model = torch.nn.BatchNorm1d(2, momentum=None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    good, target = torch.tensor([[1.0, 2.0], [3.0, 5.0]]), torch.zeros(2, 2)
    engine.add(NonFiniteGuard("skip"))
    engine.run([(good, target), (good * NAN, target)], max_epochs=1)
    assert model.num_batches_tracked == 1
    assert torch.equal(model.running_mean, good.mean(0))


class Assigns(torch.nn.Module):
    """Assigns its mean anew: a scalar, one that is None at first, or one that grows."""

    def __init__(self, kind):
        super().__init__()
        self.weight, self.kind = torch.nn.Parameter(torch.tensor(1.0)), kind
        first = {"same": torch.zeros(()), "none": None, "grows": torch.zeros(0)}[kind]
        self.register_buffer("mean", first)

    def forward(self, x):
        if self.kind == "grows":
            self.mean = torch.cat([self.mean, x.view(1)])
        else:
            self.mean = x if self.mean is None else 0.5 * self.mean + 0.5 * x
        return self.weight * x + self.mean.sum()


@pytest.mark.parametrize("options", FUSED, ids=["plain", "fused"])
@pytest.mark.parametrize("policy", ["skip", "stop"])
@pytest.mark.parametrize("kind", ["same", "none", "grows"])
def test_a_buffer_that_is_assigned_anew_is_put_back(kind, policy, options):
    def trained(*data):
        model = Assigns(kind)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, **options)
        update = Update(optimizer)

        def process(state, x):
            update(state, model(torch.tensor(x)))

        objects = {"model": model, "optimizer": optimizer}
        Engine(process, NonFiniteGuard(policy), objects=objects).run(data, max_epochs=1)
        return model

    data = [1.0, NAN, 2.0] if policy == "skip" else [1.0, 2.0, NAN]
    found, expected = trained(*data), trained(1.0, 2.0)
    assert torch.equal(found.mean, expected.mean)
    assert torch.equal(found.weight, expected.weight)
