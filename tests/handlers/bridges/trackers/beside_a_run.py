"""A run with one logger that must leave the process alone: `beside_a_run.py NAME`."""

import os
import random
import sys

import numpy
import torch

from camshaft import Engine
from camshaft.handlers import loggers
from camshaft.handlers.loggers import delivery

GIVEN = {
    "ClearML": {"project": "tests", "offline": True},
    "Comet": {"project": "tests", "options": {"online": False}},
    "MLflow": {"experiment": "tests", "uri": "sqlite:///mlflow.db"},
    "SwanLab": {"project": "tests", "options": {"mode": "offline"}},
    "TensorBoard": {"directory": "board"},
    "WandB": {"project": "tests", "options": {"mode": "offline"}},
}


def step(state, batch):
    state.metrics["loss"] = 1.0


def states():
    return random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist()


if __name__ == "__main__":
    delivery.PATIENCE = 100  # the run ends when the client is open and has all rows
    forks: list[int] = []
    os.register_at_fork(before=lambda: forks.append(1))
    engine, before = Engine(step, getattr(loggers, sys.argv[1])(**GIVEN[sys.argv[1]])), states()
    engine.run(range(3), max_epochs=2)
    assert states() == before, "the client has drawn from the random numbers of the training"
    assert not forks, "the client has forked the training process"
