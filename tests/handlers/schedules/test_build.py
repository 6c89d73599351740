"""Schedules made when the run starts: of the horizon, saved and carried on like any other."""

import logging
from functools import partial

import pytest
import torch
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from camshaft import Engine, EventEnum, Events, Update, supervised
from camshaft.handlers import Checkpoint, LRSchedule
from camshaft.handlers.schedules import (
    ScheduleEvents,
    cosine,
    hold,
    linear,
    warmup,
    warmup_stable_decay,
)

MADE = {
    "one cycle": lambda o, horizon: OneCycleLR(o, 0.1, total_steps=horizon.steps),
    "cosine": lambda o, horizon: CosineAnnealingLR(o, horizon.steps),
    "lambda": lambda o, horizon: LambdaLR(o, lambda step: 1 - step / (2 * horizon.steps)),
    "sequence": lambda o, horizon: SequentialLR(
        o, [LinearLR(o, 0.1, total_iters=3), CosineAnnealingLR(o, horizon.steps - 3)], [3]
    ),
    "chain": lambda o, horizon: ChainedScheduler(
        [LinearLR(o, 0.1, 1, horizon.steps), ExponentialLR(o, 0.9)]
    ),
    "pieces": lambda o, horizon: warmup(3).then(cosine(0.1)),
}


def test_the_total_of_steps_counts_short_windows(script):
    seen = []

    def make(optimizer, horizon):
        seen.append(horizon)
        return CosineAnnealingLR(optimizer, horizon.steps)

    made = script(make)
    state, used, _ = made.run()
    assert (seen[0].steps, seen[0].epochs, seen[0].steps_per_epoch) == (9, 3, 3)
    assert state.step == len(used) == 9
    assert made.engine.objects["scheduler"].get_last_lr() == [pytest.approx(0.0)]


@pytest.mark.quick(stop_at=1)
@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("stop_at", [7, 12])
def test_the_rates_are_the_same_whether_the_run_is_resumed_or_not(script, kind, stop_at, tmp_path):
    _, expected, weights = script(MADE[kind]).run()
    first, used, _ = script(MADE[kind], stop_at=stop_at, directory=tmp_path).run()
    assert first.stop_reason == "pause"
    _, more, resumed = script(MADE[kind], directory=tmp_path).run()
    assert used + more == expected
    assert resumed == weights


@pytest.mark.parametrize("kind", MADE)
def test_the_rates_are_the_same_when_a_state_is_carried_on(script, kind):
    _, expected, weights = script(MADE[kind]).run()
    made = script(MADE[kind], stop_at=7)
    state, *_ = made.run()
    _, used, carried = made.run(state=state)
    assert used == expected
    assert carried == weights


TOLD = {
    "one cycle": "scheduler.total_steps",
    "cosine": "scheduler.T_max",
    "pieces": "scheduler.total",
}


@pytest.mark.parametrize("kind", TOLD)
def test_a_changed_horizon_is_told_as_old_and_new_and_an_override_follows_it(
    script, kind, tmp_path
):
    script(MADE[kind], stop_at=8, directory=tmp_path).run()
    with pytest.raises(ValueError, match=f"{TOLD[kind]}: 9 in the checkpoint -> 15 in the script"):
        script(MADE[kind], directory=tmp_path).run(max_epochs=5)
    _, more, _ = script(MADE[kind], directory=tmp_path, override=["scheduler"]).run(max_epochs=5)
    _, whole, _ = script(MADE[kind]).run(max_epochs=5)
    assert more == whole[-len(more) :]
    assert len(more) == 10


@pytest.mark.parametrize("kind", ["one cycle", "cosine", "sequence", "pieces"])
def test_a_run_carried_on_to_another_length_follows_the_schedule_of_that_length(
    script, kind, caplog
):
    made = script(MADE[kind])
    state, *_ = made.run()
    with caplog.at_level(logging.WARNING, logger="camshaft"):
        _, used, _ = made.run(state=state, max_epochs=5)
    assert "'scheduler' is now that of a run with max_epochs: 3 -> 5" in caplog.text
    _, whole, _ = script(MADE[kind]).run(max_epochs=5)
    assert used[9:] == whole[9:]


@pytest.mark.parametrize("kind", MADE)
def test_another_run_of_the_engine_begins_its_schedule_anew(script, kind):
    made = script(MADE[kind])
    _, used, _ = made.run()
    made.run()
    assert used[9:] == used[:9]


def test_a_schedule_by_epochs_lasts_as_many_epochs():
    used = []
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    engine = supervised(model, optimizer, torch.nn.functional.mse_loss)
    engine.add(LRSchedule(linear(), when=Events.EPOCH_COMPLETED))
    engine.on(Events.EPOCH_STARTED)(lambda state: used.append(optimizer.param_groups[0]["lr"]))
    engine.run([(torch.ones(1, 2), torch.ones(1, 1))] * 3, max_epochs=4)
    assert used == [1.0, 0.75, 0.5, 0.25]


def hand_written(*handlers, accumulate=1):
    weight = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([weight], 0.1)
    update = Update(optimizer, accumulate=accumulate)
    return Engine(
        lambda state, batch: update(state, weight * batch),
        *(*handlers, update),
        objects={"optimizer": optimizer},
    )


def test_a_step_of_ones_own_tells_of_its_accumulation_by_its_update():
    engine = hand_written(LRSchedule(MADE["cosine"]), accumulate=2)
    state = engine.run([1.0] * 5, max_epochs=3)
    assert state.step == engine.objects["scheduler"].T_max == 9


def test_data_of_unknown_length_is_an_error_before_anything_runs():
    engine = hand_written(LRSchedule(MADE["cosine"]))
    ran = []
    engine.on(Events.STARTED)(ran.append)
    with pytest.raises(ValueError, match="or epoch_length= to say what an epoch is"):
        engine.run(iter([1.0] * 5), max_epochs=1)
    assert not ran
    assert engine.run(iter([1.0] * 5), max_steps=4).step == 4
    assert engine.run(iter([1.0] * 5), max_epochs=1, epoch_length=5).step == 5


def test_a_schedule_whose_lengths_are_steps_asks_for_no_horizon():
    engine = hand_written(LRSchedule(warmup(2).then(hold())))
    assert engine.run(iter([1.0] * 5), max_epochs=1).step == 5


class Own(EventEnum):
    CRITIC_UPDATED = "critic_updated"


def test_each_optimizer_has_a_schedule_of_its_own():
    weights = [torch.nn.Parameter(torch.zeros(())) for _ in range(2)]
    first, second = (torch.optim.SGD([weight], 1.0) for weight in weights)
    main, critic = Update(first, accumulate=2), Update(second, event=Own.CRITIC_UPDATED)

    def step(state, batch):
        main(state, weights[0] * batch)
        critic(state, weights[1] * batch)

    engine = Engine(
        *(step, main, critic),
        LRSchedule(linear(), optimizer=first),
        LRSchedule(linear(), optimizer=second, when=Own.CRITIC_UPDATED, name="critic"),
    )
    rows = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: rows.append(dict(state.metrics)))
    state = engine.run([1.0] * 4, max_epochs=1)
    assert {"scheduler", "critic_scheduler"} <= {*engine.objects}
    assert [row["lr/critic"] for row in rows] == [1.0, 0.75, 0.5, 0.25]
    assert [row.get("lr") for row in rows] == [None, 1.0, 1.0, 0.5]
    assert (state.step, state.counts[Own.CRITIC_UPDATED]) == (2, 4)


def test_the_clock_of_another_optimizer_is_refused():
    weight = torch.nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([weight], 1.0)
    update = Update(optimizer, event=Own.CRITIC_UPDATED)
    engine = Engine(
        lambda state, batch: update(state, weight * batch),
        *(update, LRSchedule(linear(), optimizer=optimizer)),
    )
    with pytest.raises(ValueError, match=r"pass LRSchedule\(\.\.\., when=Own.CRITIC_UPDATED\)"):
        engine.run([1.0], max_epochs=1)


def test_mistakes_are_told():
    with pytest.raises(RuntimeError, match="pass optimizer= to LRSchedule"):
        Engine(lambda state, batch: None, LRSchedule(cosine())).run([1], max_epochs=1)
    with pytest.raises(TypeError, match="the function of LRSchedule made None; it needs"):
        hand_written(LRSchedule(lambda o, horizon: None)).run([1.0], max_epochs=1)
    with pytest.raises(ValueError, match="needs a metric to look at"):
        hand_written(LRSchedule(lambda o, horizon: ReduceLROnPlateau(o))).run([1.0], max_epochs=1)
    with pytest.raises(ValueError, match="cannot be stepped by .*every=2"):
        hand_written(LRSchedule(cosine(), when=Events.STEP_COMPLETED(every=2))).run(
            [1.0], max_epochs=1
        )
    with pytest.raises(ValueError, match="give this schedule another name"):
        hand_written(LRSchedule(cosine()), LRSchedule(linear()))
    state = hand_written(LRSchedule(cosine())).run([1.0], max_epochs=1)
    with pytest.raises(RuntimeError, match="no schedule 'scheduler' for a run that is carried on"):
        hand_written(LRSchedule(cosine())).run([1.0], max_epochs=2, state=state)


def test_a_save_before_the_decay_can_be_continued_to_another_length(script, tmp_path):
    schedule = warmup_stable_decay(2, decay_length=0.4)
    made = script(schedule, accumulate=1)
    made.engine.add(
        Checkpoint(tmp_path, when=ScheduleEvents.PIECE_COMPLETED(at=2))  # the stable one
    )
    made.run(max_epochs=2)  # 10 steps, of which 4 decay
    saved = list(tmp_path.glob("iteration-*"))
    assert [int(path.name.removeprefix("iteration-")) for path in saved] == [6]
    longer = script(schedule, accumulate=1, directory=tmp_path, override=["scheduler"])
    _, used, _ = longer.run(max_epochs=4)
    _, whole, _ = script(schedule, accumulate=1).run(max_epochs=4)
    assert used == whole[6:]
    assert used[:6] == [0.1] * 6


def rates_of(make, **limits):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], 1.0)
    engine = Engine(lambda state, batch: optimizer.step() or state.fire(Events.STEP_COMPLETED))
    engine.objects["optimizer"] = optimizer
    engine.add(LRSchedule(make))
    rates = []
    engine.on(Events.ITERATION_COMPLETED)(lambda state: rates.append(state.metrics["lr"]))
    engine.run([1] * 4, **(limits or {"max_epochs": 1}))
    return rates


@pytest.mark.parametrize(
    "make",
    [
        partial(StepLR, step_size=1, gamma=0.5),
        partial(partial(StepLR, gamma=0.5), step_size=1),
        partial(ExponentialLR, gamma=0.5),
        lambda optimizer: ExponentialLR(optimizer, 0.5),
        lambda optimizer, gamma=0.5: ExponentialLR(optimizer, gamma),
        lambda optimizer, horizon: ExponentialLR(optimizer, horizon.epoch_length / 8),
        lambda optimizer, horizon=None: ExponentialLR(optimizer, horizon.epoch_length / 8),
        lambda optimizer, *, horizon: ExponentialLR(optimizer, horizon.epoch_length / 8),
        partial(lambda o, horizon, size: ExponentialLR(o, horizon.epoch_length / size), size=8),
        partial(lambda o, horizon: ExponentialLR(o, horizon / 2), horizon=1.0),
    ],
    ids=["partial", "nested", "other", "one", "setting", "two", "named", "key", "of two", "given"],
)
def test_a_function_gets_the_horizon_if_it_asks_for_it(make):
    assert rates_of(make) == [1.0, 0.5, 0.25, 0.125]


def test_the_defaults_of_a_scheduler_are_never_filled_with_the_horizon():
    assert rates_of(partial(ConstantLR)) == rates_of(
        lambda optimizer: ConstantLR(optimizer, 1 / 3, 5)
    )


def test_a_horizon_under_another_name_is_refused_at_once_and_the_form_is_named():
    with pytest.raises(TypeError, match="'total'; write lambda optimizer, horizon: OneCycleLR"):
        LRSchedule(lambda optimizer, total: OneCycleLR(optimizer, 0.1, total.steps))


def test_a_function_that_would_not_run_when_it_is_called_is_refused_at_once():
    async def make(optimizer, horizon):
        return cosine()

    with pytest.raises(TypeError, match="is a coroutine function"):
        LRSchedule(make)


def test_a_partial_that_lacks_a_setting_is_refused_at_once():
    with pytest.raises(TypeError, match="partial of StepLR .*'step_size'"):
        LRSchedule(partial(StepLR, gamma=0.5))


def test_what_does_not_depend_on_the_length_of_the_run_goes_on_in_a_longer_one(caplog):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], 1.0)
    engine = Engine(lambda state, batch: state.metrics.update(score=1.0))
    engine.objects["optimizer"] = optimizer
    engine.add(LRSchedule(partial(ReduceLROnPlateau, patience=2), metric="score"))
    state = engine.run([1], max_epochs=3)
    engine.run([1], state=state, max_epochs=5)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
    assert not caplog.messages
