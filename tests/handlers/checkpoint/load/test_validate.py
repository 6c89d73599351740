"""Validation: what cannot be loaded is refused, and what was really saved never is."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from camshaft import Engine, supervised
from camshaft.handlers import LRSchedule
from camshaft.handlers.checkpoint.load import refusing, validate_objects, validate_run


def validate(run, objects, saved):
    validate_run(run)
    with refusing("these objects"):
        if found := validate_objects(objects, saved):
            raise ValueError("holds what cannot be loaded " + "; ".join(found))


DATA = [(torch.ones(3, 4), torch.ones(3, 1))] * 3


def trained(make_optimizer=torch.optim.Adam, make_schedule=None):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = make_optimizer(model.parameters(), lr=0.1)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    if make_schedule is not None:
        engine.add(LRSchedule(make_schedule(optimizer)))
    state = engine.run(DATA, max_epochs=2)
    saved = {name: each.state_dict() for name, each in engine.objects.items()}
    return engine.objects, saved, state.state_dict()


@pytest.mark.parametrize(
    "name",
    ["SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop"]
    + ["Rprop", "Adafactor"] * hasattr(torch.optim, "Adafactor"),
)
def test_every_optimizer_of_torch_is_taken_as_it_was_saved(name):
    objects, saved, run = trained(getattr(torch.optim, name))
    validate(run, objects, saved)
    fresh, _, _ = trained(getattr(torch.optim, name))
    validate(run, fresh, saved)


@pytest.mark.parametrize(
    "make",
    [
        lambda each: lr_scheduler.OneCycleLR(each, 1.0, 10),
        lambda each: lr_scheduler.MultiStepLR(each, [1, 2]),
        lambda each: lr_scheduler.CosineAnnealingWarmRestarts(each, 2),
        lambda each: lr_scheduler.LambdaLR(each, lambda epoch: 0.9),
        lambda each: lr_scheduler.SequentialLR(
            each, [lr_scheduler.ConstantLR(each), lr_scheduler.StepLR(each, 1)], [2]
        ),
    ],
    ids=["one cycle", "multi step", "warm restarts", "lambda", "sequential"],
)
def test_every_schedule_of_torch_is_taken_as_it_was_saved(make):
    objects, saved, run = trained(make_schedule=make)
    validate(run, objects, saved)


def put(*keys, value):
    def change(run, saved):
        place = {"run": run, **saved}
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def drop(*keys):
    def change(run, saved):
        place = {"run": run, **saved}
        for key in keys[:-1]:
            place = place[key]
        del place[keys[-1]]

    return change


# What tests/faults/test_hostile.py lets a whole run refuse is not here again.
CHANGES = {
    "a negative iteration": put("run", "iteration", value=-1),
    "half an iteration": put("run", "iteration", value=1.5),
    "an iteration of true": put("run", "iteration", value=True),
    "an iteration of 2^63": put("run", "iteration", value=2**63),
    "no iteration": drop("run", "iteration"),
    "an epoch that is a list": put("run", "epoch", value=[1]),
    "a flag that is a number": put("run", "in_epoch", value=1),
    "a reason that is a number": put("run", "stop_reason", value=1),
    "metrics that are a list": put("run", "metrics", value=[]),
    "counts of text": put("run", "counts", value={"x": "1"}),
    "a memory that is a number": put("run", "memory", value=3),
    "a position without generators": put("run", "position", value={"number": 1, "began": 0}),
    "a position with a source": put("run", "position", "source", value=[1, 2]),
    "a seed that is text": put("run", "position", "seed", value="seed"),
    "sizes of text": put("run", "position", "sizes", value={"batches": "3"}),
    "ranks of text": put("run", "position", "dealing", "ranks", value="4"),
    "an order that is a number": put("run", "position", "dealing", "order", value=3),
    "less than no samples": put("run", "position", "dealing", "samples_before", value=-1),
    "a dealing that is a list": put("run", "position", "dealing", value=[4]),
    "a dealing of its own": put("run", "position", "dealing", value={"ranks": 1, "x": 2}),
    "a handler without a name": put("run", "handlers", value=[3]),
    "settings as a list": put("run", "settings", value=[]),
    "torch's generator cut": put("run", "position", "rng", "torch", value=torch.zeros(3).byte()),
    "torch's generator of text": put("run", "position", "rng", "torch", value="seed"),
    "a generator of the data beyond its buffer": put(
        *("run", "position", "rng", "generators"), value=[{"state": {}, "buffer_pos": 9}]
    ),
    "NumPy's key cut": put(
        "run", "position", "rng", "numpy", "state", "key", value=("<u4", b"1234")
    ),
    "an optimizer without states": drop("optimizer", "state"),
    "a state of another parameter": put("optimizer", "state", 99, value={}),
    "a state that is text": put("optimizer", "state", 0, value="momentum"),
    "a momentum of another shape": put("optimizer", "state", 0, "exp_avg", value=torch.zeros(2)),
    "a complex momentum": put("optimizer", "state", 1, "exp_avg", value=torch.zeros(4) * 1j),
    "a momentum that is text": put("optimizer", "state", 0, "exp_avg", value="x"),
    "a schedule's clock that is text": put("LRSchedule.scheduler", "last_epoch", value="7"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_no_run_makes_is_refused_and_nothing_changes(name):
    objects, saved, run = trained(make_schedule=lambda each: lr_scheduler.StepLR(each, 1))
    (schedule,) = objects.keys() - {"model", "optimizer"}
    saved = copy.deepcopy(saved)
    saved["LRSchedule.scheduler"] = saved.pop(schedule)
    objects = {"LRSchedule.scheduler": objects[schedule], **objects}
    validate(run, objects, saved)
    before = random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[2]
    changed = copy.deepcopy(run)
    CHANGES[name](changed, saved)
    with pytest.raises(ValueError, match="holds (what|values|a malf)|state vector|RNG state"):
        validate(changed, objects, saved)
    assert before == (random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[2])


def test_a_run_that_has_not_begun_is_taken():
    validate(Engine(lambda state, batch: None).run([], max_epochs=0).state_dict(), {}, {})
