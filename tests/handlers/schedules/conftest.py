"""A run of one weight, and what it shows: the rates that its steps used, and its rows."""

import json
from dataclasses import dataclass, field

import pytest
import torch

from camshaft import Engine, Events, Stage, Update
from camshaft.handlers import JSONLines, LRSchedule


@dataclass
class Small:
    """An engine whose process function makes `calls` steps in an iteration, or one in `rarely`."""

    calls: int = 1
    rarely: int = 1
    accumulate: int = 1
    is_known: bool = True
    used: list[float] = field(default_factory=list)
    metrics: list[object] = field(default_factory=list)
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

    def run(self, batches=10, data=None, **limits):
        return self.engine.run([1.0] * batches if data is None else data, **limits)

    def rows(self, path, when):
        """The rows of a log, once the run is over."""
        self.engine.add(JSONLines(path, when=when))
        return lambda: [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def small():
    return Small
