"""Settings: what a script has set, by name, and what of it has changed."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import Linear
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingLR,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from camshaft.handlers.checkpoint.resume.settings import Change, changes, settings

SCHEDULES = {
    "cosine": lambda o: CosineAnnealingLR(o, 100),
    "steps": lambda o: MultiStepLR(o, [3, 5]),
    "lambda": lambda o: LambdaLR(o, lambda step: 0.5**step),
    "plateau": lambda o: ReduceLROnPlateau(o, patience=2),
    "one cycle": lambda o: OneCycleLR(o, 1.0, total_steps=60),
    "cyclic": lambda o: CyclicLR(o, 0.1, 1.0, step_size_up=10),
    "warm-up": lambda o: SequentialLR(o, [LinearLR(o), CosineAnnealingLR(o, 90)], [10]),
    "chain": lambda o: ChainedScheduler([LinearLR(o), ExponentialLR(o, 0.9)]),
}


def script(schedule=None, optimizer=SGD, **options):
    made = optimizer(Linear(2, 1).parameters(), **{"lr": 0.1, **options})
    return {"optimizer": made} | ({} if schedule is None else {"scheduler": schedule(made)})


@pytest.mark.parametrize("kind", SCHEDULES)
def test_two_scripts_that_say_the_same_have_the_same_settings(kind):
    first, second = (settings(script(SCHEDULES[kind], momentum=0.9)) for _ in range(2))
    assert changes(first, second) == []
    assert first.keys() == second.keys()
    assert first["optimizer.lr"] == (0.04 if kind == "one cycle" else 0.1)


@pytest.mark.parametrize(
    ("kind", "other", "expected"),
    [
        ("cosine", lambda o: CosineAnnealingLR(o, 200), ["scheduler.T_max"]),
        ("steps", lambda o: MultiStepLR(o, [3, 7], 0.2), ["scheduler.milestones"]),
        ("plateau", lambda o: ReduceLROnPlateau(o, patience=3), ["scheduler.patience"]),
        (
            "warm-up",
            lambda o: SequentialLR(o, [LinearLR(o), CosineAnnealingLR(o, 80)], [20]),
            ["scheduler._milestones", "scheduler.1.T_max"],
        ),
        (
            "chain",
            lambda o: ChainedScheduler([LinearLR(o, 0.2), ExponentialLR(o, 0.9)]),
            ["scheduler.0.start_factor"],
        ),
    ],
    ids=["cosine", "steps", "plateau", "warm-up", "chain"],
)
def test_a_changed_schedule_is_told_by_the_names_of_what_changed(kind, other, expected):
    found = changes(settings(script(SCHEDULES[kind])), settings(script(other)))
    assert [each.name for each in found if each.name != "scheduler.gamma"] == expected


@pytest.mark.parametrize("kind", [None, *SCHEDULES])
def test_a_changed_rate_is_one_change(kind):
    schedule = SCHEDULES.get(kind)
    found = changes(settings(script(schedule)), settings(script(schedule, lr=0.05)))
    if kind in ("one cycle", "cyclic"):  # these set the rates themselves
        assert found == []
    else:
        assert list(map(str, found)) == [
            "optimizer.lr: 0.1 in the checkpoint -> 0.05 in the script"
        ]


def test_an_optimizer_that_the_engine_does_not_know_has_its_rates_told_by_the_schedule():
    first, second = (
        settings({"s": StepLR(SGD(Linear(1, 1).parameters(), lr), 3)}) for lr in (0.1, 0.2)
    )
    assert changes(first, second) == [Change("s.base_lrs", [0.1], [0.2])]


def test_a_class_is_a_setting():
    found = changes(settings(script(optimizer=Adam)), settings(script(optimizer=AdamW)))
    assert Change("optimizer.class", "Adam", "AdamW") in found
    found = changes(
        settings(script(lambda o: ExponentialLR(o, 0.9))),
        settings(script(lambda o: StepLR(o, 5, 0.9))),
    )
    assert found == [Change("scheduler.class", "ExponentialLR", "StepLR")]


def test_several_groups_are_numbered():
    model = Linear(2, 1)
    groups = [{"params": [model.weight], "lr": 0.1}, {"params": [model.bias], "lr": 0.2}]
    found = settings({"optimizer": SGD(groups, 1.0), "model": model})
    assert (found["optimizer.0.lr"], found["optimizer.1.lr"]) == (0.1, 0.2)
    assert "optimizer.lr" not in found


def test_settings_are_values_of_their_own():
    rate = torch.tensor(0.1)
    objects = script(optimizer=Adam, lr=rate)
    found = settings(objects)
    rate.fill_(0.2)
    objects["optimizer"].param_groups[0]["lr"].fill_(0.3)
    assert found["optimizer.lr"] == torch.tensor(0.1)


def test_functions_are_left_out():
    objects = script()
    objects["optimizer"].param_groups[0]["hook"] = len
    objects["optimizer"].param_groups[0]["hooks"] = {"a": [len]}
    assert not [name for name in settings(objects) if "hook" in name]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.text(min_size=1, max_size=3), VALUES, max_size=4))
def test_whatever_a_setting_is_it_equals_itself(values):
    again = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    assert changes(values, again) == []


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (0.9, 0.9, True),
        (1, 1.0, True),
        ((0.9, 0.99), [0.9, 0.99], True),
        ((0.9, 0.99), (0.9, 0.999), False),
        ((0.9,), (0.9, 0.999), False),
        (None, 0, False),
        (math.nan, math.nan, True),
        (torch.tensor(0.5), torch.tensor(0.5), True),
        (torch.tensor(0.5), torch.tensor([0.5]), False),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0]), False),
        (torch.tensor(0.5), 0.5, True),
        (Counter({3: 1}), {3: 1}, True),
        ({"a": (1, 2)}, {"a": [1, 3]}, False),
        ("cos", "linear", False),
    ],
    ids=str,
)
def test_settings_are_compared_by_value(old, new, same):
    assert (changes({"x": old}, {"x": new}) == []) is same
