"""What a schedule sees of its run: the rate that was used, other schedules, the pace of steps."""

import math
from contextlib import nullcontext
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from camshaft import Engine, EventEnum, Events, Update
from camshaft.handlers import Checkpoint, LRSchedule
from camshaft.handlers.schedules import cosine, hold, linear, warmup

STEP, ITERATION, EPOCH = Events.STEP_COMPLETED, Events.ITERATION_COMPLETED, Events.EPOCH_COMPLETED


# The rate in metrics and rows


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("when", [STEP, EPOCH, STEP(every=2), ITERATION(after=1), EPOCH(every=2)])
def test_the_rate_in_metrics_and_rows_is_the_one_that_the_last_step_used(
    small, when, accumulate, tmp_path
):
    script = small(accumulate=accumulate).add(lambda o: StepLR(o, 1, 0.5), when=when)
    used = []
    script.engine.on(ITERATION)(lambda state: used.append(script.used[-1:] or [None]))
    by_iteration = script.rows(tmp_path / "iterations", ITERATION)
    by_epoch = script.rows(tmp_path / "epochs", EPOCH)
    script.run(3, max_epochs=4)
    expected = [rate or 1.0 for (rate,) in used]  # before the first step it is the rate of it
    assert [rate or 1.0 for rate in script.metrics] == expected
    assert [row["lr"] for row in by_iteration()] == expected
    last = [row["lr"] for row in by_epoch() if row["iteration"] % 3 == 0]
    assert last == expected[2::3]


@pytest.mark.quick(stop_at=2)
@pytest.mark.parametrize("stop_at", [4, 6, 3, 5, 7])
def test_a_resumed_run_logs_the_same_rates(small, stop_at, tmp_path):
    def script(directory):
        made = small(accumulate=2).add(lambda o: StepLR(o, 1, 0.5), when=EPOCH)
        made.engine.add(Checkpoint(tmp_path / directory, resume=True))
        return made, made.rows(tmp_path / f"{directory}.jsonl", ITERATION | EPOCH)

    whole, expected = script("whole")
    whole.run(3, max_epochs=4)
    first, _ = script("cut")
    first.pause(stop_at).run(3, max_epochs=4)
    second, rows = script("cut")
    second.run(3, max_epochs=4)
    assert rows() == expected()
    assert first.metrics + second.metrics == whole.metrics


def test_steps_that_nothing_announces_are_taken_one_an_iteration(tmp_path):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], 1.0)
    seen = []

    def process(state, batch):
        optimizer.step()

    engine = Engine(process, objects={"optimizer": optimizer})
    engine.add(LRSchedule(StepLR(optimizer, 1, 0.5), when=EPOCH))
    engine.on(ITERATION)(lambda state: seen.append(state.metrics["lr"]))
    engine.run([1, 2], max_epochs=3)
    assert seen == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]


def test_groups_of_parameters_have_their_rates_in_the_first_epoch(small):
    script = small()
    script.optimizer.add_param_group(
        {"params": [torch.nn.Parameter(torch.zeros(()))], "lr": 0.1, "name": "head"}
    )
    script.add(lambda o: StepLR(o, 1, 0.5), when=EPOCH)
    seen = []
    script.engine.on(ITERATION)(lambda state: seen.append({"loss": 1.0} | state.metrics))
    script.run(1, max_epochs=2)
    rates = [{"lr/0": 1.0, "lr/head": 0.1}, {"lr/0": 0.5, "lr/head": 0.05}]
    assert seen == [{"loss": 1.0} | each for each in rates]


class Own(EventEnum):
    CRITIC_UPDATED = "critic_updated"


def test_each_of_two_optimizers_has_the_rate_of_its_own_last_step():
    weights = [torch.nn.Parameter(torch.zeros(())) for _ in range(2)]
    first, second = (torch.optim.SGD([weight], 1.0) for weight in weights)
    main, critic = Update(first), Update(second, event=Own.CRITIC_UPDATED)
    seen = []

    def step(state, batch):
        critic(state, weights[1] * batch)
        if state.iteration % 2 == 0:
            main(state, weights[0] * batch)

    engine = Engine(step, main, critic, objects={"optimizer": first, "critic_optimizer": second})
    engine.add(LRSchedule(StepLR(first, 1, 0.5), when=EPOCH))
    engine.add(LRSchedule(StepLR(second, 1, 0.1), when=EPOCH, name="critic"))
    engine.on(ITERATION)(lambda s: seen.append((s.metrics.get("lr"), s.metrics["lr/critic"])))
    engine.run([1.0] * 3, max_epochs=2)
    assert seen == [(1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (0.5, 0.1), (0.5, 0.1), (0.5, 0.1)]


# Several schedules of one rate


def by_torch(steps, epoch_length, *makers):
    """The rates of a loop that steps torch's schedulers, each by steps or by epochs."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], 1.0)
    schedulers = [(make(optimizer), by_epochs) for make, by_epochs in makers]
    used = []
    for step in range(1, steps + 1):
        used.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        for scheduler, by_epochs in schedulers:
            if not by_epochs or step % epoch_length == 0:
                scheduler.step()
    return used


PAIRS = [
    ((lambda o: LinearLR(o, 0.1, 1, 4), False), (lambda o: ExponentialLR(o, 0.9), False)),
    ((lambda o: LinearLR(o, 0.1, 1, 4), False), (lambda o: StepLR(o, 1, 0.5), True)),
    ((lambda o: StepLR(o, 1, 0.5), True), (lambda o: CosineAnnealingLR(o, 12), False)),
]


@pytest.mark.parametrize("pair", PAIRS, ids=["steps", "warm-up and epochs", "epochs and cosine"])
@pytest.mark.parametrize("is_ready", [True, False])
def test_two_schedulers_of_torch_compose_as_in_a_loop_and_log_the_rate_that_was_used(
    small, pair, is_ready
):
    script = small()
    for number, (make, by_epochs) in enumerate(pair):
        given = make(script.optimizer) if is_ready else make
        script.add(given, when=EPOCH if by_epochs else STEP, name=f"s{number}")
    both = []
    script.engine.on(ITERATION)(
        lambda state: both.append((state.metrics["lr/s0"], state.metrics["lr/s1"]))
    )
    script.run(3, max_epochs=4)
    assert script.used == by_torch(12, 3, *pair)
    assert both == [(rate, rate) for rate in script.used]


@pytest.mark.parametrize("stop_at", [2, 6])
def test_two_schedulers_of_torch_are_resumed_exactly(small, stop_at, tmp_path):
    def script(*handlers):
        made = small().add(PAIRS[1][0][0], name="warm-up").add(PAIRS[1][1][0], when=EPOCH)
        made.engine.add(*handlers)
        return made

    first = script(Checkpoint(tmp_path))
    first.pause(stop_at).run(3, max_epochs=4)
    second = script(Checkpoint(tmp_path, resume=True))
    second.run(3, max_epochs=4)
    assert first.used + second.used == by_torch(12, 3, *PAIRS[1])
    assert first.metrics + second.metrics == first.used + second.used


def test_two_schedules_of_one_rate_are_not_rebuilt_for_a_longer_run(small):
    script = small().add(lambda o, horizon: LinearLR(o, 0.1, 1, horizon.steps), name="warm-up")
    script.add(PAIRS[0][1][0])
    state = script.run(3, max_epochs=1)
    with pytest.raises(ValueError, match="'warm-up_scheduler' and 'scheduler' of one optimizer"):
        script.run(3, max_epochs=2, state=state)


@pytest.mark.parametrize(
    "other",
    [
        linear(),
        lambda o: StepLR(o, 1, 0.5),
        lambda o: LambdaLR(o, lambda step: 1.0),
        partial(ReduceLROnPlateau, patience=3),
    ],
    ids=["pieces", "step", "lambda", "plateau"],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_schedule_of_pieces_beside_another_one_of_the_same_rate_is_refused(
    small, other, is_first
):
    script = small(by_hand=lambda state: state.metrics.update(score=1.0))
    is_plateau = callable(other) and isinstance(other(script.optimizer), ReduceLROnPlateau)
    added = [(warmup(2), {}), (other, {"name": "b", "metric": "score" if is_plateau else None})]
    for schedule, arguments in added if is_first else reversed(added):
        script.add(schedule, **arguments)
    with pytest.raises(ValueError, match=r"write one schedule of both, such as warmup\(500\)"):
        script.run(3, max_epochs=1)
    assert not script.used


@pytest.mark.parametrize(
    "schedules",
    [
        [lambda o: ConstantLR(o, 0.5, 3), lambda o: LambdaLR(o, lambda step: 0.9**step)],
        [lambda o: LambdaLR(o, lambda step: 0.9**step), lambda o: ExponentialLR(o, 0.9)],
        [lambda o: ChainedScheduler([CosineAnnealingWarmRestarts(o, 8), ConstantLR(o, 0.5, 3)])],
    ],
    ids=["in front", "behind", "in a chain"],
)
def test_a_scheduler_that_sets_the_rate_from_the_first_one_beside_another_one_is_told(
    small, schedules
):
    script = small()
    for number, schedule in enumerate(schedules):
        script.add(schedule, name=f"schedule_{number}")
    with pytest.warns(UserWarning, match="sets it at each of its steps"):
        script.run(4, max_epochs=1)


@pytest.mark.parametrize(
    ("first", "end", "is_told"),
    [
        (lambda o: ConstantLR(o, 0.1, 2), 2, True),
        (lambda o: LinearLR(o, 0.1, 1.0, 3), 2, True),
        (lambda o: ConstantLR(o, 0.1, 2), 3, False),
        (lambda o: LinearLR(o, 1.0, 0.1, 2), 2, False),
    ],
    ids=["constant", "rising", "behind it", "falling"],
)
@pytest.mark.filterwarnings("ignore:The epoch parameter")  # SequentialLR of torch 2.8
def test_a_warm_up_that_multiplicative_lr_never_leaves_is_told(small, first, end, is_told):
    def make(o):
        return SequentialLR(o, [first(o), MultiplicativeLR(o, lambda step: 0.9)], [end])

    said = f"finds, which .* leaves low at step {end}"
    with pytest.warns(UserWarning, match=said) if is_told else nullcontext():
        small().add(make).run(4, max_epochs=1)


@pytest.mark.parametrize("is_shared", [True, False])
def test_groups_that_share_a_tensor_as_their_rate_are_told_of_a_schedule_for_each(is_shared):
    weights = [torch.nn.Parameter(torch.zeros(())) for _ in range(2)]
    groups = [{"params": [weight], "lr": torch.tensor(1.0)} for weight in weights]
    if is_shared:
        groups = [{"params": group["params"]} for group in groups]
    optimizer = torch.optim.SGD(groups, torch.tensor(1.0))
    schedule = LambdaLR(optimizer, [lambda step: 1.0, lambda step: 0.01])
    with pytest.warns(UserWarning, match="share one tensor") if is_shared else nullcontext():
        LRSchedule(schedule)
    rates = [round(group["lr"].item(), 4) for group in optimizer.param_groups]
    assert rates == ([0.01, 0.01] if is_shared else [1.0, 0.01])


def test_pieces_beside_a_scheduler_that_moves_the_momentum_too_are_refused():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], 1.0, momentum=0.9)
    engine = Engine(lambda state, batch: None, objects={"optimizer": optimizer})
    engine.add(LRSchedule(OneCycleLR(optimizer, 0.1, 10)))
    engine.add(LRSchedule(linear(final=0.5, length=5), field="momentum"))
    with pytest.raises(ValueError, match="move 'momentum' of one optimizer"):
        engine.run([1], max_epochs=1)


def test_pieces_of_several_fields_or_of_several_optimizers_go_together(small):
    script = small()
    other = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], 1.0, momentum=0.9)
    script.by_hand = lambda state: other.step()
    script.engine.objects["other_optimizer"] = other
    script.add(linear()).add(linear(final=0.1), field="weight_decay")
    script.add(hold(), optimizer=other, name="other", when=ITERATION)
    script.add(linear(length=5), optimizer=other, field="momentum", when=ITERATION)
    script.run(4, max_epochs=1)


def test_one_scheduler_in_two_handlers_is_refused(small):
    script = small()
    scheduler = StepLR(script.optimizer, 1, 0.5)
    script.add(scheduler)
    with pytest.raises(ValueError, match="steps the same StepLR already"):
        script.add(scheduler, name="again")


# Steps by hand


@pytest.mark.parametrize(
    "make",
    [
        lambda o: StepLR(o, 4, 0.9),
        lambda o: CosineAnnealingLR(o, 40),
        lambda o: ChainedScheduler([StepLR(o, 4, 0.9)]),
    ],
    ids=["step", "cosine", "chain"],
)
@pytest.mark.parametrize("when", [STEP, EPOCH])
def test_a_scheduler_that_is_stepped_by_hand_too_is_an_error(small, make, when):
    script = small()
    scheduler = make(script.optimizer)
    script.by_hand = lambda state: scheduler.step()
    script.add(scheduler, when=when)
    with pytest.raises(RuntimeError, match=r"stepped by hand too: .*Leave scheduler.step\(\) out"):
        script.run(4, max_epochs=3)
    assert len(script.used) == (2 if when is STEP else 4)


def test_a_scheduler_without_a_handler_or_set_back_by_hand_is_right(small):
    script = small()
    scheduler = StepLR(script.optimizer, 30, 0.9)
    script.by_hand = lambda state: scheduler.step()
    script.run(4, max_epochs=3)
    script = small()
    scheduler = StepLR(script.optimizer, 30, 0.9)
    begin = scheduler.state_dict()
    script.add(scheduler)
    script.engine.on(EPOCH)(lambda state: scheduler.load_state_dict(begin))
    script.run(4, max_epochs=3)


def test_a_scheduler_that_the_script_has_advanced_before_the_run_is_right(small):
    script = small()
    scheduler = CosineAnnealingLR(script.optimizer, 40)
    script.optimizer.step()
    for _ in range(3):
        scheduler.step()
    script.add(scheduler).run(4, max_epochs=1)
    assert len(script.used) == 4


# Runs whose iterations make several steps, or not each a step


@pytest.mark.parametrize(
    "schedule",
    [
        cosine(),
        warmup(0.1).then(cosine()),
        lambda o, horizon: CosineAnnealingLR(o, horizon.steps),
        lambda o, horizon: LambdaLR(o, lambda step: 1 - step / horizon.steps),
    ],
    ids=["pieces", "warm-up", "torch", "lambda"],
)
def test_several_steps_an_iteration_are_told_in_the_first_and_horizon_is_what_to_write(
    small, schedule
):
    script = small(calls=12).add(schedule)
    with pytest.raises(RuntimeError, match=r"LRSchedule\(\.\.\., horizon=12 \* 20\) for 12 steps"):
        script.run(10, max_epochs=2)
    assert len(script.used) == 2
    told = small(calls=12).add(schedule, horizon=240)
    whole = small().add(schedule)
    assert told.run(10, max_epochs=2).step == whole.run(120, max_epochs=2).step == 240
    assert told.used == whole.used


@pytest.mark.parametrize("when", [STEP, EPOCH])
def test_a_rate_below_0_is_an_error_once_a_step_has_used_it(small, when):
    script = small().add(lambda o: LambdaLR(o, lambda step: 1 - step / 4), when=when)
    script.run(4 if when is STEP else 1, max_epochs=1 if when is STEP else 4)  # ends at 0
    script = small().add(lambda o: LambdaLR(o, lambda step: 1 - step / 4), when=when)
    with pytest.raises(RuntimeError, match=r"'lr' to -0.25 for the last step, .* stepped 5 times"):
        script.run(8 if when is STEP else 1, max_epochs=1 if when is STEP else 8)
    assert script.used[-1] == -0.25


def test_a_step_in_five_iterations_is_told_after_the_first_epoch(small, caplog):
    small(rarely=5).add(cosine()).run(10, max_epochs=3)
    assert "2 steps in 10 iterations, the run makes about 6: write LRSchedule(..., horizon=n)" in (
        caplog.text
    )
    caplog.clear()
    script = small(rarely=5).add(linear(), horizon=6)
    script.run(10, max_epochs=3)
    assert [round(rate * 6) for rate in script.used] == [6, 5, 4, 3, 2, 1]
    assert not caplog.messages


def test_a_horizon_that_is_far_from_the_steps_of_the_run_is_told(small, caplog):
    small(calls=2).add(cosine(), horizon=100).run(10, max_epochs=3)
    assert "is for a run of 100 steps, and at the pace of the first epoch" in caplog.text
    assert "the run makes about 60" in caplog.text


RIGHT = [
    ({}, {"max_epochs": 3}),
    ({"accumulate": 4}, {"max_epochs": 3}),
    ({"accumulate": 4}, {"max_iterations": 25}),
    ({"accumulate": 4}, {"max_epochs": 3, "max_steps": 5}),
    ({"calls": 12}, {"max_steps": 240}),
    ({"calls": 12}, {"max_steps": 60, "max_epochs": 7}),
    ({"rarely": 5}, {"max_steps": 6}),
]


@pytest.mark.parametrize(("settings", "limits"), RIGHT)
def test_a_schedule_whose_number_of_steps_is_right_is_not_told_of(small, settings, limits, caplog):
    script = small(**settings).add(linear())
    state = script.run(10, **limits)
    steps = len(script.used)
    assert state.step == steps
    assert script.rate == 0.0
    assert [round(rate * steps) for rate in script.used] == [*range(steps, 0, -1)]
    assert not caplog.messages


def test_a_function_that_corrects_the_number_by_itself_is_right(small, caplog):
    script = small(calls=12)
    script.add(lambda o, horizon: CosineAnnealingLR(o, 12 * horizon.steps)).run(10, max_epochs=2)
    script = small(calls=12)
    script.add(lambda o, horizon: ExponentialLR(o, 1 - horizon.epoch_length / 10**4))
    script.run(10, max_epochs=2)
    small(calls=12).add(lambda o, horizon: cosine(length=240)).run(10, max_epochs=2)
    small(calls=12).add(warmup(40).then(hold())).run(10, max_epochs=2)
    assert not caplog.messages


@pytest.mark.quick(stop_at=2)
@pytest.mark.parametrize("stop_at", [4, 9, 1])
def test_a_run_with_a_horizon_of_its_own_is_resumed_exactly(small, stop_at, tmp_path):
    def script(*handlers, horizon=36):
        made = small(calls=3).add(warmup(4).then(cosine()), horizon=horizon)
        made.engine.add(*handlers)
        return made

    whole = script()
    whole.run(4, max_epochs=3)
    first = script(Checkpoint(tmp_path))
    first.pause(stop_at).run(4, max_epochs=3)
    with pytest.raises(ValueError, match=r"scheduler.total: 36 in the checkpoint -> 48"):
        script(Checkpoint(tmp_path, resume=True), horizon=48).run(4, max_epochs=3)
    second = script(Checkpoint(tmp_path, resume=True))
    second.run(4, max_epochs=3)
    assert first.used + second.used == whole.used


def test_a_horizon_gives_a_schedule_to_data_of_unknown_length(small):
    script = small().add(linear(), horizon=5)
    script.run(data=iter([1.0] * 5), max_epochs=1)
    assert script.rate == 0.0
    assert all(one > other for one, other in pairwise(script.used))


def test_a_horizon_that_nothing_looks_at_is_refused(small):
    optimizer = small().optimizer
    with pytest.raises(ValueError, match="a whole number from 1"):
        LRSchedule(cosine(), horizon=0.5)
    with pytest.raises(ValueError, match="this one says its length itself"):
        LRSchedule(StepLR(optimizer, 1), horizon=10)
    with pytest.raises(ValueError, match="this one says its length itself"):
        LRSchedule(lambda o: StepLR(o, 1), horizon=10)
    script = small().add(cosine(), horizon=10, when=EPOCH)
    with pytest.raises(ValueError, match="it lasts as many epochs as the run"):
        script.run(2, max_epochs=5)


def test_a_run_that_ends_some_steps_after_its_limit_says_so(small, caplog):
    script = small(calls=12).add(cosine())
    assert script.run(10, max_steps=30).step == 36
    assert "max_steps=30, and the run made 36 steps" in caplog.text
    assert "Write max_steps=36" in caplog.text
    caplog.clear()
    assert small(calls=12).run(10, max_steps=36).step == 36
    assert small(accumulate=3).run(10, max_steps=3).step == 3
    assert not caplog.messages


@pytest.mark.parametrize("planned", [8, 12, 20])
def test_a_cosine_that_climbs_again_after_its_planned_steps_is_told(small, planned):
    def factor(step, *, num_training_steps):  # as transformers.get_cosine_schedule_with_warmup
        return (1 + math.cos(math.pi * step / num_training_steps)) / 2

    script = small().add(lambda o: LambdaLR(o, partial(factor, num_training_steps=planned)))
    is_told = pytest.warns(UserWarning, match="give num_training_steps=12")
    with is_told if planned < 12 else nullcontext():
        script.run(3, max_epochs=4)
