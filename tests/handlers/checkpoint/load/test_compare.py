"""Comparison: settings that changed, and all that does not fit, by name."""

import math
from collections import Counter

import pytest
import torch
from torch.nn import Linear, Sequential
from torch.optim import SGD
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
)

from camshaft.handlers.checkpoint.load import changes, mismatches, settings_of
from camshaft.handlers.checkpoint.weights import weights

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
    found = changes(settings_of(script(SCHEDULES[kind])), settings_of(script(other)))
    assert [each.name for each in found if each.name != "scheduler.gamma"] == expected


def test_several_groups_are_numbered():
    model = Linear(2, 1)
    groups = [{"params": [model.weight], "lr": 0.1}, {"params": [model.bias], "lr": 0.2}]
    found = settings_of({"optimizer": SGD(groups, 1.0), "model": model})
    assert (found["optimizer.0.lr"], found["optimizer.1.lr"]) == (0.1, 0.2)
    assert "optimizer.lr" not in found


def test_functions_are_left_out():
    objects = script()
    objects["optimizer"].param_groups[0]["hook"] = len
    objects["optimizer"].param_groups[0]["hooks"] = {"a": [len]}
    assert not [name for name in settings_of(objects) if "hook" in name]


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


def test_weights_are_compared_by_name_shape_and_type():
    model = Sequential(Linear(2, 3), Linear(3, 1))
    saved = weights(Sequential(Linear(2, 4), Linear(3, 1).to(torch.bfloat16)))
    del saved["1.bias"]
    saved["2.bias"] = torch.zeros(1)
    there = {"0.weight": "[4, 2]", "0.bias": "[4]"}
    here = {"0.weight": "[3, 2]", "0.bias": "[3]"}
    assert set(mismatches({"model": model}, {"model": saved})) == {
        "weights of 'model' only in the module: '1.bias'",
        "weights of 'model' only in the checkpoint: '2.bias'",
        "weight '1.weight' of 'model': bfloat16[1, 3] in the checkpoint, "
        "float32[1, 3] in the module",
        *(
            f"weight {name!r} of 'model': float32{there[name]} in the checkpoint, "
            f"float32{here[name]} in the module"
            for name in there
        ),
    }


def test_what_a_module_keeps_besides_its_weights_may_be_of_any_kind():
    saved = {"_extra_state": {"scale": 1.0}, "0.inner._extra_state": torch.ones(3)}
    model = Sequential(Linear(1, 1))
    own = weights(model) | {"_extra_state": None, "0.inner._extra_state": torch.ones(2)}
    model.state_dict = lambda: own
    assert mismatches({"model": model}, {"model": own | saved}) == []
