"""What the configs of the tests name: a user's own module."""

import os
import signal
from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from camshaft import Events

MADE = []


def network(hidden):
    MADE.append(hidden)
    return nn.Sequential(nn.Linear(64, hidden), nn.Dropout(0.1), nn.ReLU(), nn.Linear(hidden, 10))


@dataclass(frozen=True)
class Part:
    """A dataclass and a list of tensors, which OmegaConf would turn into configs."""

    first: int
    last: int

    def samples(self):
        images, labels = map(torch.tensor, load_digits(return_X_y=True))
        return TensorDataset(
            *(each[self.first : self.last] for each in (images.float() / 16, labels))
        )


def samples(part):
    assert isinstance(part, Part), part
    return part.samples()


def batches(samples, size):
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def one_cycle(optimizer, horizon, max_lr):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr, total_steps=horizon.steps)


def step(state, batch):
    return batch


def failing(model, optimizer):
    raise AttributeError("a bug of the user's")


def of_layer(model, number):
    return torch.optim.SGD(model[number].parameters(), lr=0.1)


@dataclass(frozen=True, eq=False)
class Kept:
    """A handler that does nothing but hold what a config gave to it."""

    things: dict

    def attach(self, engine):
        pass


@dataclass(frozen=True, eq=False)
class Signalled:
    """Sends this process a signal at an iteration, unless the run was begun before."""

    at: int
    name: str

    def attach(self, engine):
        engine.on(Events.STARTED)(self.begin)
        engine.on(Events.ITERATION_COMPLETED(at=self.at))(self.send)

    def begin(self, state):
        state.recall(self, list, saved=False).append(state.iteration)

    def send(self, state):
        if state.recall(self, list, saved=False) == [0]:
            os.kill(os.getpid(), getattr(signal, self.name))
