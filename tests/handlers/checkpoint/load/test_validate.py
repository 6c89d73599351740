"""Validation: what cannot be loaded is refused, and what was really saved never is."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

from camshaft import Engine, supervised
from camshaft.handlers.checkpoint.load import validate_run

DATA = [(torch.ones(3, 4), torch.ones(3, 1))] * 3


def trained():
    model = nn.Linear(4, 1)
    engine = supervised(model, torch.optim.Adam(model.parameters()), nn.functional.mse_loss)
    return engine.run(DATA, max_epochs=2).state_dict()


def put(*keys, value):
    def change(run):
        place = {"run": run}
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def drop(*keys):
    def change(run):
        place = {"run": run}
        for key in keys[:-1]:
            place = place[key]
        del place[keys[-1]]

    return change


# What tests/faults/test_hostile.py lets a whole run refuse is not here again.
CHANGES = {
    "half an iteration": put("run", "iteration", value=1.5),
    "an iteration of true": put("run", "iteration", value=True),
    "no iteration": drop("run", "iteration"),
    "an epoch that is a list": put("run", "epoch", value=[1]),
    "a flag that is a number": put("run", "in_epoch", value=1),
    "metrics that are a list": put("run", "metrics", value=[]),
    "a memory that is a number": put("run", "memory", value=3),
    "a position without generators": put("run", "position", value={"number": 1, "began": 0}),
    "a dealing of its own": put("run", "position", "dealing", value={"ranks": 1, "x": 2}),
    "settings as a list": put("run", "settings", value=[]),
    "torch's generator cut": put("run", "position", "rng", "torch", value=torch.zeros(3).byte()),
    "torch's generator of text": put("run", "position", "rng", "torch", value="seed"),
    "a generator of the data beyond its buffer": put(
        *("run", "position", "rng", "generators"), value=[{"state": {}, "buffer_pos": 9}]
    ),
    "NumPy's key cut": put(
        "run", "position", "rng", "numpy", "state", "key", value=("<u4", b"1234")
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_no_run_makes_is_refused_and_nothing_changes(name):
    run = trained()
    validate_run(run)
    before = random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[2]
    changed = copy.deepcopy(run)
    CHANGES[name](changed)
    with pytest.raises(ValueError, match="holds (a|values)|state vector|RNG state"):
        validate_run(changed)
    assert before == (random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[2])


def test_a_run_that_has_not_begun_is_taken():
    validate_run(Engine(lambda state, batch: None).run([], max_epochs=0).state_dict())
