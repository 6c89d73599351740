"""Misfits: all of them, by name."""

import pytest
import torch
from torch.nn import Linear, Sequential
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import CosineAnnealingLR, StepLR

from camshaft.handlers.checkpoint.resume.mismatch import memory_mismatches, mismatches
from camshaft.handlers.checkpoint.weights import weights


def test_what_fits_is_no_misfit():
    model = Linear(2, 1)
    optimizer = SGD(model.parameters(), 0.1)
    assert (
        mismatches(
            {"model": model, "optimizer": optimizer},
            {"model": weights(Linear(2, 1)), "optimizer": optimizer.state_dict()},
        )
        == []
    )


def test_names_of_objects_are_listed_on_both_sides():
    assert mismatches({"model": None, "ema": None}, {"model": {}, "critic": {}}) == [
        "objects only in the engine: 'ema'",
        "objects only in the checkpoint: 'critic'",
    ]


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


def test_groups_of_parameters_are_counted():
    model = Linear(2, 1)
    whole, part = SGD(model.parameters(), 0.1), SGD([model.weight], 0.1)
    (line,) = mismatches({"optimizer": part}, {"optimizer": whole.state_dict()})
    assert line == (
        "the groups of 'optimizer' hold [2] parameters in the checkpoint and [1] in the optimizer"
    )


@pytest.mark.parametrize("kind", ["optimizer", "scheduler"])
def test_an_optimizer_or_a_schedule_of_another_class_is_told_by_what_it_remembers(kind):
    model = Linear(2, 1)
    sgd, adam = SGD(model.parameters(), 0.1), Adam(model.parameters())
    pairs = {"optimizer": (sgd, adam), "scheduler": (StepLR(sgd, 1), CosineAnnealingLR(adam, 3))}
    own, other = pairs[kind]
    (line,) = mismatches({kind: own}, {kind: other.state_dict()})
    assert line.startswith(f"'{kind}' is of another class: it has no ")


def test_a_handler_that_is_missed_is_listed_with_those_that_may_be_its_new_name():
    assert memory_mismatches(["old"], ["new", "bar"]) == [
        "handlers only in the script: 'bar', 'new'",
        "handlers only in the checkpoint: 'old'",
    ]
    assert memory_mismatches([], ["new", "bar"]) == []


def test_what_a_schedule_noted_in_an_optimizer_is_no_misfit():
    own, scheduled = SGD(Linear(2, 1).parameters(), 0.1), SGD(Linear(2, 1).parameters(), 0.1)
    StepLR(scheduled, 1)
    assert mismatches({"optimizer": own}, {"optimizer": scheduled.state_dict()}) == []


def test_what_a_module_keeps_besides_its_weights_may_be_of_any_kind():
    saved = {"_extra_state": {"scale": 1.0}, "0.inner._extra_state": torch.ones(3)}
    model = Sequential(Linear(1, 1))
    own = weights(model) | {"_extra_state": None, "0.inner._extra_state": torch.ones(2)}
    model.state_dict = lambda: own
    assert mismatches({"model": model}, {"model": own | saved}) == []
