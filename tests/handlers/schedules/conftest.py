"""Runs that show the rates that their steps used: of one weight, and of a small model."""

import json
from collections import UserList
from dataclasses import dataclass, field

import pytest
import torch

from camshaft import Engine, Events, Stage, Update, supervised
from camshaft.handlers import Checkpoint, JSONLines, LRSchedule


@dataclass
class Small:
    """An engine whose process function makes `calls` steps in an iteration, or one in `rarely`."""

    calls: int = 1
    rarely: int = 1
    accumulate: int = 1
    is_known: bool = True
    used: UserList = field(default_factory=UserList)  # of a test, and of no run
    metrics: UserList = field(default_factory=UserList)
    by_hand: object = None

    def __post_init__(self):
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.optimizer = torch.optim.SGD([self.weight], 1.0)
        self.update = Update(self.optimizer, accumulate=self.accumulate)
        self.engine = Engine(self.process, objects={"optimizer": self.optimizer})
        if self.is_known:
            self.engine.add(self.update)
        self.engine.on(Events.GRADIENTS_READY)(lambda state: self.used.append(self.rate))
        self.engine.on(Events.ITERATION_COMPLETED, stage=Stage.REPORT)(self.look)

    @property
    def rate(self):
        return self.optimizer.param_groups[0]["lr"]

    def process(self, state, batch):
        for _ in range(self.calls):
            if state.iteration % self.rarely == 0:
                self.update(state, self.weight * batch)
        state.metrics["loss"] = 1.0
        if self.by_hand is not None:
            self.by_hand(state)

    def look(self, state):
        self.metrics.append(state.metrics.get("lr"))

    def add(self, schedule, **arguments):
        self.engine.add(LRSchedule(schedule, **arguments))
        return self

    def pause(self, at):
        self.engine.on(Events.ITERATION_COMPLETED(at=at))(lambda state: state.interrupt("pause"))
        return self

    def run(self, batches=10, data=None, **limits):
        return self.engine.run([1.0] * batches if data is None else data, **limits)

    def rows(self, path, when):
        """The rows of a log, once the run is over."""
        self.engine.add(JSONLines(path, when=when))
        return lambda: [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def small():
    return Small


class Script:
    """What a process makes anew each time it is started."""

    def __init__(self, schedule, *, accumulate=2, stop_at=None, directory=None, **arguments):
        torch.manual_seed(0)
        self.model = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)
        self.engine = supervised(
            self.model, self.optimizer, torch.nn.functional.mse_loss, accumulate=accumulate
        )
        checkpoint = () if directory is None else (Checkpoint(directory, resume=True, **arguments),)
        self.engine.add(*checkpoint, LRSchedule(schedule))  # in either order
        self.used = UserList()
        self.engine.on(Events.GRADIENTS_READY)(
            lambda state: self.used.append(self.optimizer.param_groups[0]["lr"])
        )
        if stop_at is not None:
            self.engine.on(Events.ITERATION_COMPLETED(at=stop_at))(
                lambda state: state.interrupt("pause")
            )

    def run(self, **limits):
        batches = [(torch.full((1, 2), float(n)), torch.zeros(1, 1)) for n in range(5)]
        state = self.engine.run(batches, **({"max_epochs": 3} | limits))
        return state, self.used, [p.tolist() for p in self.model.parameters()]


@pytest.fixture
def script():
    return Script
