"""Several optimizers of one loss: one step of all, equal to a loop by hand."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ExponentialLR,
    OneCycleLR,
    ReduceLROnPlateau,
    StepLR,
)

from camshaft import Engine, EventEnum, Events, Update, supervised
from camshaft.handlers import (
    Checkpoint,
    ClipGradNorm,
    GradNorm,
    LRSchedule,
    NonFiniteGuard,
    SpikeGuard,
    Validate,
    find_lr,
)
from camshaft.handlers.schedules import linear, warmup

GENERATOR = torch.Generator().manual_seed(0)
BATCHES = [
    (torch.randn(4, 3, generator=GENERATOR), torch.randn(4, 2, generator=GENERATOR))
    for _ in range(7)
]
LOSS = nn.functional.mse_loss
STEP, GRADIENTS, ITERATION = (
    Events.STEP_COMPLETED,
    Events.GRADIENTS_READY,
    Events.ITERATION_COMPLETED,
)


def made(kind=None):
    """A model, an optimizer of its matrices and one of its biases."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    matrices = [each for each in model.parameters() if each.ndim == 2]
    others = [each for each in model.parameters() if each.ndim != 2]
    kind = kind or getattr(torch.optim, "Muon", None)  # since torch 2.9
    kind = kind or partial(torch.optim.SGD, momentum=0.9)
    return model, kind(matrices, lr=0.02), torch.optim.AdamW(others, lr=0.01)


def made_engine():
    model, *optimizers = made()
    return model, optimizers, LOSS


class OtherEvents(EventEnum):
    STEPPED = "stepped"


def numbers(model):
    return [each.detach().clone() for each in model.parameters()]


def are_equal(first, second):
    return all(map(torch.equal, first, second))


def by_hand(epochs=2, accumulate=1, limit=None, schedule=None, kind=None):
    """The weights of a loop that steps both optimizers, and the norms that it clipped by."""
    model, *optimizers = made(kind)
    schedulers = [] if schedule is None else [schedule(each) for each in optimizers]
    parameters = [p for each in optimizers for p in each.param_groups[0]["params"]]
    norms = []
    for _ in range(epochs):
        for begin in range(0, len(BATCHES), accumulate):
            window = BATCHES[begin : begin + accumulate]
            for each in optimizers:
                each.zero_grad()
            for input, target in window:
                LOSS(model(input), target).backward()
            if len(window) > 1:
                for each in model.parameters():
                    each.grad.mul_(1 / len(window))
            if limit is not None:
                norms.append(nn.utils.clip_grad_norm_(parameters, limit).item())
            for each in [*optimizers, *schedulers]:
                each.step()
    return numbers(model), norms


@pytest.mark.parametrize("accumulate", [1, 3])
def test_several_optimizers_make_one_step_with_one_norm_as_in_a_loop_by_hand(accumulate):
    model, *optimizers = made()
    engine = supervised(model, optimizers, LOSS, accumulate=accumulate).add(ClipGradNorm(0.5))
    norms = []
    engine.on(STEP)(lambda state: norms.append(state.metrics["grad_norm"].item()))
    state = engine.run(BATCHES, max_epochs=2)
    weights, expected = by_hand(2, accumulate, limit=0.5)
    assert are_equal(numbers(model), weights)
    assert norms == expected
    assert state.step == len(norms) == 2 * -(-7 // accumulate)
    assert list(engine.objects) == ["model", "optimizer.0", "optimizer.1"]


def test_each_of_several_optimizers_has_its_name_and_its_schedules():
    model, first, second = made()
    engine = supervised(model, {"matrices": first, "others": second}, LOSS)
    engine.add(
        LRSchedule(linear(), optimizer="matrices", name="matrices"),
        LRSchedule(StepLR(second, 3), name="others"),
    )
    state = engine.run(BATCHES, max_epochs=2)
    assert (engine.objects["matrices"], engine.objects["others"]) == (first, second)
    assert state.metrics["lr/matrices"] != state.metrics["lr/others"]
    assert second.param_groups[0]["lr"] == pytest.approx(0.01 * 0.1**4)

    again, *optimizers = made()
    engine = supervised(again, optimizers, LOSS)
    for number in range(2):
        engine.add(
            LRSchedule(
                lambda each: torch.optim.lr_scheduler.StepLR(each, 3),
                optimizer=f"optimizer.{number}",
                name=str(number),
            )
        )
    engine.run(BATCHES, max_epochs=2)
    weights, _ = by_hand(schedule=partial(StepLR, step_size=3))
    assert are_equal(numbers(again), weights)


CHAINED = partial(StepLR, step_size=3)
PLATEAU = partial(ReduceLROnPlateau, factor=0.5, patience=0, threshold=0.5)


@pytest.mark.parametrize(
    "schedule",
    [CHAINED, lambda each: ChainedScheduler([StepLR(each, 2), ExponentialLR(each, 0.9)])],
)
def test_one_schedule_of_all_optimizers_moves_each_as_one_of_its_own_would(schedule):
    model, *optimizers = made()
    engine = supervised(model, optimizers, LOSS).add(LRSchedule(schedule))
    state = engine.run(BATCHES, max_epochs=2)
    assert are_equal(numbers(model), by_hand(schedule=schedule)[0])
    assert list(engine.objects) == ["model", "optimizer.0", "optimizer.1", "scheduler"]
    assert {"lr/optimizer.0", "lr/optimizer.1"} < state.metrics.keys()


def test_pieces_of_one_schedule_are_factors_of_the_rate_of_each_optimizer():
    model, first, second = made()
    engine = supervised(model, {"muon": first, "adamw": second}, LOSS)
    rates = []
    engine.on(ITERATION)(
        lambda state: rates.append([state.metrics[f"lr/{name}"] for name in ("muon", "adamw")])
    )
    pieces = warmup(2).then(linear())
    engine.add(LRSchedule(pieces)).run(BATCHES, max_epochs=1)
    assert rates == [[0.02 * factor, 0.01 * factor] for factor in pieces.factors(7)]


def test_a_schedule_by_a_metric_lowers_the_rates_of_all_optimizers():
    model, first, second = made()
    engine = supervised(model, {"muon": first, "adamw": second}, LOSS)
    engine.add(Validate(BATCHES), LRSchedule(PLATEAU, metric="val/loss"))
    metrics = engine.run(BATCHES, max_epochs=4).metrics
    assert metrics["lr/muon"] == 2 * metrics["lr/adamw"] < 0.02


def test_a_momentum_that_not_all_optimizers_have_is_no_field_of_one_schedule():
    model, *optimizers = made()
    cycle = partial(OneCycleLR, max_lr=0.1, total_steps=14)
    engine = supervised(model, optimizers, LOSS).add(LRSchedule(cycle))
    with pytest.raises(ValueError, match="must support momentum"):
        engine.run(BATCHES, max_epochs=2)
    engine = supervised(model, optimizers, LOSS).add(LRSchedule(linear(), field="betas.0"))
    with pytest.raises(ValueError, match=r"field='betas.0': the parameter groups only have"):
        engine.run(BATCHES, max_epochs=2)


def test_a_schedule_of_all_optimizers_beside_one_of_one_of_them_is_refused():
    model, *optimizers = made()
    engine = supervised(model, optimizers, LOSS).add(
        LRSchedule(CHAINED), LRSchedule(CHAINED, optimizer="optimizer.0", name="first")
    )
    with pytest.raises(ValueError, match=r"both move 'lr' of one optimizer, and one of them also"):
        engine.run(BATCHES, max_epochs=1)
    engine = supervised(*made_engine()).add(
        LRSchedule(linear()),
        LRSchedule(linear(), optimizer="optimizer.1", name="decay", field="weight_decay"),
    )
    assert "weight_decay/decay" in engine.run(BATCHES, max_epochs=1).metrics


def test_a_schedule_of_all_optimizers_is_of_one_update():
    model, first, second = made()
    both = {"optimizer.0": first, "optimizer.1": second}
    updates = [Update([first]), Update([second], event=OtherEvents.STEPPED)]

    def process(state, batch):
        for update in updates:
            update(state, LOSS(model(batch[0]), batch[1]))

    engine = Engine(process, *updates, LRSchedule(linear()), objects={"model": model, **both})
    with pytest.raises(RuntimeError, match=r"'optimizer.0', 'optimizer.1'; each has a schedule"):
        engine.run(BATCHES, max_epochs=1)
    engine = Engine(process, *updates, objects={"model": model, **both})
    engine.add(LRSchedule(linear(), optimizer=updates[0].optimizer))
    state = engine.run(BATCHES, max_epochs=1)
    assert state.metrics["lr/optimizer.0"] < 0.02
    assert second.param_groups[0]["lr"] == 0.01


@pytest.mark.parametrize("stop", [1, 5, 9])
@pytest.mark.parametrize("schedule", [warmup(2).then(linear()), PLATEAU], ids=["pieces", "plateau"])
def test_a_run_with_one_schedule_of_all_optimizers_resumes_to_the_same_bits(
    tmp_path, stop, schedule
):
    metric = "loss" if schedule is PLATEAU else None
    when = STEP if metric else None

    def engine(*handlers):
        model, first, second = made()
        return model, supervised(model, {"muon": first, "adamw": second}, LOSS).add(
            LRSchedule(schedule, metric=metric, when=when), *handlers
        )

    model, plain = engine()
    expected = plain.run(BATCHES, max_epochs=2).metrics
    _, begun = engine(Checkpoint(tmp_path, resume=True))
    begun.on(ITERATION(at=stop))(lambda state: state.interrupt("leaves"))
    begun.run(BATCHES, max_epochs=2)
    again, resumed = engine(Checkpoint(tmp_path, resume=True))
    assert resumed.run(BATCHES, max_epochs=2).metrics == expected
    assert are_equal(numbers(again), numbers(model))


def test_a_resume_refuses_optimizers_in_another_order_which_a_schedule_of_all_goes_by(tmp_path):
    def run(names, **options):
        model, *optimizers = made()
        both = dict(zip(("muon", "adamw"), optimizers, strict=True))
        engine = supervised(model, {name: both[name] for name in names}, LOSS)
        engine.add(LRSchedule(linear()), Checkpoint(tmp_path, resume=True, **options))
        if names[0] == "muon":
            engine.on(ITERATION(at=5))(lambda state: state.interrupt("leaves"))
        return engine.run(BATCHES, max_epochs=2).metrics

    run(("muon", "adamw"))
    with pytest.raises(ValueError, match=r"scheduler.optimizers: \['muon', 'adamw'\] in the check"):
        run(("adamw", "muon"))
    with pytest.raises(ValueError, match="scheduler.optimizers"):
        run(("adamw", "muon"), override=["Update.optimizers"])
    both = ["Update.optimizers", "scheduler.optimizers"]
    metrics = run(("adamw", "muon"), override=both)
    assert metrics["lr/adamw"] == pytest.approx(0.01 / 14)
    assert metrics["lr/muon"] == pytest.approx(0.02 / 14)


def test_another_rate_of_one_optimizer_is_told_and_taken_by_the_schedule_of_all(tmp_path):
    def run(rate, stop=None, **options):
        model, first, second = made()
        second.param_groups[0]["lr"] = rate
        engine = supervised(model, {"muon": first, "adamw": second}, LOSS)
        engine.add(LRSchedule(linear()), Checkpoint(tmp_path, resume=True, **options))
        if stop is not None:
            engine.on(ITERATION(at=stop))(lambda state: state.interrupt("leaves"))
        return engine.run(BATCHES, max_epochs=2).metrics

    run(0.01, stop=5)
    with pytest.raises(
        ValueError, match=r"adamw\.lr: 0\.01 in the checkpoint -> 0\.05 in the script"
    ):
        run(0.05)
    metrics = run(0.05, override=["adamw.lr"])
    assert metrics["lr/adamw"] == pytest.approx(0.05 / 14)
    assert metrics["lr/muon"] == pytest.approx(0.02 / 14)


@pytest.mark.parametrize("stop", [1, 5, 9])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_run_of_several_optimizers_resumes_to_the_same_bits(tmp_path, stop, accumulate):
    def engine(*handlers):
        model, first, second = made()
        optimizers = {"matrices": first, "others": second}
        return model, supervised(model, optimizers, LOSS, accumulate=accumulate).add(
            LRSchedule(warmup(2).then(linear()), optimizer="matrices", name="matrices"),
            LRSchedule(linear(), optimizer="others", name="others"),
            *handlers,
        )

    model, plain = engine()
    plain.run(BATCHES, max_epochs=2)
    handlers = NonFiniteGuard("skip"), SpikeGuard("rewind"), Checkpoint(tmp_path, resume=True)
    _, begun = engine(*handlers)
    begun.on(ITERATION(at=stop))(lambda state: state.interrupt("leaves"))
    begun.run(BATCHES, max_epochs=2)
    again, resumed = engine(*handlers)
    state = resumed.run(BATCHES, max_epochs=2)
    assert are_equal(numbers(again), numbers(model))
    assert state.step == 2 * -(-7 // accumulate)


def test_clipping_may_name_one_of_several_optimizers():
    model, first, second = made()
    engine = supervised(model, [first, second], LOSS)
    engine.add(ClipGradNorm(0.01, optimizer=second), GradNorm(optimizer=first, name="matrices"))
    seen = []

    @engine.on(GRADIENTS)
    def look(state):
        norms = [
            torch.stack([p.grad.norm() for p in o.param_groups[0]["params"]]).norm()
            for o in (first, second)
        ]
        seen.append(norms[1].item() < 0.0101 < norms[0].item())
        assert [*state.optimizer.param_groups] == [*first.param_groups, *second.param_groups]

    state = engine.run(BATCHES, max_epochs=1)
    assert all(seen)
    assert len(seen) == 7
    assert "grad_norm/matrices" in state.metrics


def test_a_guard_skips_the_step_of_all_of_them():
    model, *optimizers = made()
    before = numbers(model)
    engine = supervised(model, optimizers, lambda made, target: LOSS(made, target) * torch.nan)
    state = engine.add(NonFiniteGuard("skip", limit=9)).run(BATCHES, max_epochs=1)
    assert are_equal(numbers(model), before)
    assert (state.step, state.metrics["skipped_steps"]) == (0, 7)
    assert not any(each.state for each in optimizers)


def test_several_optimizers_share_one_scaler():
    model, *optimizers = made()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    update = Update(optimizers, scaler=scaler)
    engine = Engine(lambda state, batch: update(state, LOSS(model(batch[0]), batch[1])), update)
    state = engine.run(BATCHES, max_epochs=2)
    assert state.step == 14
    assert scaler.get_scale() == 8.0 * 2**4
    assert are_equal(numbers(model), by_hand()[0])  # powers of two lose no bit


def test_an_overflow_skips_the_step_of_all_of_them():
    model, *optimizers = made()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    update = Update(optimizers, scaler=scaler)
    before = numbers(model)
    engine = Engine(
        lambda state, batch: update(state, LOSS(model(batch[0]), batch[1]) * 64), update
    )
    state = engine.run(BATCHES[:1], max_epochs=1)
    assert (state.step, scaler.get_scale()) == (0, 2.0**126)
    assert are_equal(numbers(model), before)


def test_the_search_of_a_rate_leaves_several_optimizers_as_they_were():
    model, first, second = made()
    before = numbers(model)
    find_lr(supervised(model, [first, second], LOSS), BATCHES, optimizer=first, steps=5)
    assert are_equal(numbers(model), before)
    assert not first.state
    assert not second.state


def test_a_parameter_in_two_optimizers_or_in_none_is_told():
    model, first, second = made()
    twice = torch.optim.SGD([model[0].bias], lr=0.1)
    with pytest.raises(ValueError, match=r"'optimizer.1' and 'optimizer.2' update the same param"):
        supervised(model, [first, second, twice], LOSS)
    with pytest.raises(ValueError, match="'a' and 'b' update the same parameter"):
        Update({"a": first, "b": first})
    engine = supervised(model, [first, twice], LOSS)
    with pytest.warns(UserWarning, match=r"no optimizer of this engine holds .*2\.bias"):
        engine.run(BATCHES, max_epochs=1)


def test_what_is_no_group_of_optimizers_is_refused():
    model, first, second = made()
    with pytest.raises(ValueError, match="needs at least one"):
        supervised(model, [], LOSS)
    with pytest.raises(TypeError, match="'optimizer.1' is a str; several optimizers need to be"):
        Update([first, "adamw"])
    with pytest.raises(ValueError, match="LBFGS evaluates the loss several times a step"):
        Update([first, torch.optim.LBFGS([model[0].bias])])
    with pytest.raises(ValueError, match="an optimizer is called 'model'"):
        supervised(model, {"model": first, "others": second}, LOSS)


def test_groups_that_come_later_are_stepped_and_cleared():
    model, first, second = made()
    late = nn.Parameter(torch.ones(1))
    engine = supervised(
        model, [first, second], lambda made, target: LOSS(made, target) + late.sum()
    )
    second.add_param_group({"params": [late]})
    engine.run(BATCHES, max_epochs=1)
    assert late.item() != 1.0
    assert late.grad is None


# What torch imports to compile an optimizer warns about itself.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_several_optimizers_are_compiled_each_by_itself():
    torch._dynamo.reset()
    model, *optimizers = made(torch.optim.SGD)
    engine = supervised(model, optimizers, LOSS, compile={"backend": "eager"})
    engine.add(ClipGradNorm(0.5)).run(BATCHES, max_epochs=2)
    weights, _ = by_hand(limit=0.5, kind=torch.optim.SGD)
    for own, expected in zip(numbers(model), weights, strict=True):
        torch.testing.assert_close(own, expected)


ON_RANKS = """
import sys
import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from camshaft import Events, ranks, supervised
from camshaft.handlers import Checkpoint, ClipGradNorm, LRSchedule, Validate
from camshaft.handlers.schedules import cosine, warmup

init_process_group("gloo")
mse = torch.nn.functional.mse_loss


def run(directory, wrap, stop=None):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    if wrap == "fsdp2":
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    else:
        model = DistributedDataParallel(model)
    matrices = [each for each in model.parameters() if each.ndim == 2]
    others = [each for each in model.parameters() if each.ndim < 2]
    optimizers = {
        "matrices": torch.optim.SGD(matrices, lr=0.1, momentum=0.9),
        "others": torch.optim.AdamW(others, lr=0.01),
    }
    generator = torch.Generator().manual_seed(ranks.rank())
    pairs = [[torch.randn(4, n, generator=generator) for n in (3, 2)] for _ in range(7)]
    engine = supervised(model, optimizers, mse, accumulate=2)
    engine.add(ClipGradNorm(0.5), LRSchedule(warmup(2).then(cosine())), Validate(pairs))
    engine.add(Checkpoint(directory, resume=True))
    if stop is not None:
        engine.on(Events.ITERATION_COMPLETED(at=stop))(lambda state: state.interrupt("leaves"))
    return {name: float(each) for name, each in engine.run(pairs, max_epochs=2).metrics.items()}


for wrap in ("ddp", "fsdp2"):
    whole = run(sys.argv[1] + wrap + "-whole", wrap)
    run(sys.argv[1] + wrap, wrap, stop=4)
    assert run(sys.argv[1] + wrap, wrap) == whole
    assert abs(whole["lr/matrices"] / whole["lr/others"] - 10) < 1e-9, whole
destroy_process_group()
"""


@pytest.mark.slow
def test_on_two_ranks_one_schedule_of_all_optimizers_resumes_to_the_same_metrics(
    processes, tmp_path
):
    processes.run_ranks(2, ON_RANKS, f"{tmp_path}/")
