"""Schedules with other settings, taken to where the run is."""

import warnings

import pytest
from torch.nn import Linear
from torch.optim import SGD
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LinearLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from camshaft.handlers.checkpoint.load import replay, schedules_to_replay

SCHEDULES = {
    "cosine": lambda o: CosineAnnealingLR(o, 100),
    "restarts": lambda o: CosineAnnealingWarmRestarts(o, 7, 2),
    "one cycle": lambda o: OneCycleLR(o, 1.0, total_steps=60),
    "cyclic": lambda o: CyclicLR(o, 0.1, 1.0, step_size_up=10),
    "warm-up": lambda o: SequentialLR(o, [LinearLR(o), CosineAnnealingLR(o, 90)], [10]),
    "chain": lambda o: ChainedScheduler([LinearLR(o), ExponentialLR(o, 0.9)]),
}


def optimizer(lr=0.1):
    return SGD(Linear(2, 1).parameters(), lr, momentum=0.9)


def course(scheduler, steps):
    groups = []
    for _ in range(steps):
        groups.append({key: scheduler.optimizer.param_groups[0][key] for key in ("lr", "momentum")})
        scheduler.optimizer.step()
        scheduler.step()
    return groups


@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("steps", [0, 1, 13, 20, 45])
def test_a_schedule_is_replayed_to_where_another_one_was(kind, steps):
    whole = course(SCHEDULES[kind](optimizer()), 60)
    saved = SCHEDULES[kind](optimizer(0.3))
    course(saved, steps)
    scheduler = SCHEDULES[kind](optimizer())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (driven,) = replay(scheduler, saved.state_dict())
    assert {key: driven[key] for key in ("lr", "momentum")} == whole[steps]
    assert course(scheduler, 60 - steps) == whole[steps:]


def test_what_is_changed_in_an_optimizer_changes_the_course_of_its_own_schedule_alone():
    first, second = optimizer(), optimizer()
    objects = {
        "first": first,
        "second": second,
        "a": StepLR(first, 3),
        "b": StepLR(second, 3),
        "plateau": ReduceLROnPlateau(first),
    }
    assert schedules_to_replay(objects, ["first.weight_decay"]) == []
    assert schedules_to_replay(objects, ["second.lr"]) == ["b"]
    assert schedules_to_replay(objects, ["b.gamma", "b.step_size"]) == ["b"]
    assert schedules_to_replay(objects, ["plateau.patience"]) == []


def test_of_two_schedules_of_one_optimizer_none_can_be_changed():
    own = optimizer()
    objects = {"optimizer": own, "warm_up": LinearLR(own), "scheduler": StepLR(own, 3)}
    for changed in ("optimizer.lr", "scheduler.gamma", "warm_up"):
        with pytest.raises(ValueError, match="'warm_up' and 'scheduler' move the rates of one"):
            schedules_to_replay(objects, [changed])
    assert schedules_to_replay(objects, ["optimizer.weight_decay"]) == []
