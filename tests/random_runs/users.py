"""Handlers of a script's own: they draw random numbers, remember, stop, and change the run."""

import random
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field

import numpy as np
import torch

from camshaft.engine import part_of
from camshaft.handlers import EMA, EarlyStopping, RestoreBest, Validate

from .steps import Own

DRAWS = {
    "torch": lambda: torch.rand(()).item(),
    "numpy": lambda: float(np.random.random()),
    "python": random.random,
}


def loss_of(output):
    """What is measured of each engine's output."""
    return part_of(output, "loss")


@dataclass
class Drawn:
    """What was drawn, and where."""

    numbers: list = field(default_factory=list)
    calls: list = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Draw:
    """Draws random numbers, and remembers them with all clocks."""

    when: object
    kind: str = "torch"

    def attach(self, engine):
        engine.on(self.when)(self.draw)

    def draw(self, state):
        drawn = state.recall(self, Drawn)
        drawn.numbers.append(DRAWS[self.kind]())
        drawn.calls.append((state.iteration, state.step, state.epoch, state.iteration_in_epoch))


@dataclass(frozen=True, eq=False)
class Tell:
    """Counts in a dict, whose keys come and go; writes a metric and fires an event of its own."""

    when: object

    def attach(self, engine):
        engine.on(self.when)(self.tell)

    def tell(self, state):
        memory = state.recall(self, dict)
        memory[f"at {state.iteration}"] = torch.tensor(state.step)
        for name in [*memory][:-3]:
            del memory[name]
        state.metrics["told"] = len(memory) + state.iteration / 10
        state.fire(Own.PING)


@dataclass(frozen=True, eq=False)
class Tally:
    """Remembers in containers of the standard library."""

    when: object

    def attach(self, engine):
        engine.on(self.when)(self.count)

    def count(self, state):
        memory = state.recall(self, dict)
        counter = memory.setdefault("counts", Counter())
        latest = memory.setdefault("latest", deque(maxlen=3))
        sums = memory.setdefault("sums", defaultdict(float))
        counter[str(state.iteration % 3)] += 1
        counter.update(all=2)
        latest.append(state.iteration)
        sums[state.iteration % 3] += state.epoch / 8
        state.metrics["tallied"] = sum(latest) + sum(sums.values())


class Keep:
    """Keeps values in attributes of its own, on which a metric depends."""

    def __init__(self, when):
        self.when, self.total, self.last, self.sums, self.latest = (
            when,
            0.0,
            None,
            {},
            deque(maxlen=3),
        )

    def attach(self, engine):
        engine.on(self.when)(self.keep)

    def keep(self, state):
        weight = next(state.engine.objects["model"].parameters()).detach().double().sum()
        self.total += state.iteration / 8
        self.sums[state.iteration % 3] = self.sums.get(state.iteration % 3, 0) + weight
        self.latest.append((state.epoch, float(weight)))
        self.last = weight if self.last is None else self.last + weight
        state.metrics["kept"] = float(sum(self.sums.values()) + self.last) + self.total
        state.metrics["latest"] = sum(number for _, number in self.latest)


@dataclass(frozen=True, eq=False)
class Toggle:
    """Freezes the last weight or lets it train, and changes the rate of dropout."""

    when: object

    def attach(self, engine):
        engine.on(self.when)(self.toggle)

    def toggle(self, state):
        model = state.engine.objects["model"]
        for each in model.modules():
            if isinstance(each, torch.nn.Dropout):
                each.p = 0.5 - each.p
        *_, last = model.parameters()
        last.requires_grad_(not last.requires_grad)


@dataclass(frozen=True, eq=False)
class Judged:
    """Validates the weights or their averages, and goes by that: the best weights, a stop."""

    data: object
    when: object
    weights: str | None = None

    def attach(self, engine):
        engine.add(
            EMA(0.7, name="judged_ema"),
            Validate(self.data, name="judged", when=self.when, weights=self.weights),
            RestoreBest("judged/loss", weights=self.weights, name="judged_best"),
            EarlyStopping("judged/loss", patience=4, when=self.when),
        )


@dataclass(frozen=True, eq=False)
class Slower:
    """Changes rates, moments and a weight by hand, as it holds them since the start."""

    when: object

    def attach(self, engine):
        optimizer, weight = engine.objects["optimizer"], next(engine.objects["model"].parameters())
        groups, states, own = [*optimizer.param_groups], optimizer.state, optimizer.state[weight]

        @engine.on(self.when)
        def slow(state):
            for group in groups:
                group["lr"] *= 0.9
            with torch.no_grad():
                weight.mul_(0.999)
                for each in (own, *states.values()):
                    for value in each.values():
                        if isinstance(value, torch.Tensor) and value.dim():
                            value.mul_(0.99)


@dataclass(frozen=True, eq=False)
class Stop:
    """Ends the run, or with `of="epoch"` the epoch."""

    when: object
    of: str = "run"

    def attach(self, engine):
        engine.on(self.when)(self.stop)

    def stop(self, state):
        if self.of == "run":
            state.stop("enough")
        else:
            state.stop_epoch()


@dataclass(frozen=True, eq=False)
class Save:
    """Asks for a save outside the schedule of the checkpoints."""

    when: object

    def attach(self, engine):
        engine.on(self.when)(self.save)

    def save(self, state):
        state.save("wanted")
