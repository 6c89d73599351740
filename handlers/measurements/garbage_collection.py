"""Garbage collection at set iterations."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

from ...engine.engine import Engine
from ...engine.events import Events, Stage
from ...engine.state.state import State


@dataclass(frozen=True, eq=False)
class GarbageCollection:
    """Collect garbage every so many iterations, and at no other time of the run.

    Python collects when enough objects were made: at another moment on every rank, so that each
    time one rank keeps all others waiting. Here all ranks collect in the same iteration, and only
    the young generations, which takes little. Afterwards Python's own collection is as it was.

    Objects in cycles stay until then: where memory grows too much, collect more often.

    Args:
        every: Iterations between two collections.

    Raises:
        ValueError: `every` is no number of iterations.
    """

    every: int = 1000

    def __post_init__(self) -> None:
        """Refuse what is no count, as the trigger does."""
        Events.ITERATION_COMPLETED(every=self.every)

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Take over as the run starts, and give back when it is closed."""
        engine.on(Events.STARTED)(self.take_over)
        engine.on(Events.ITERATION_COMPLETED(every=self.every), stage=Stage.REPORT)(self.collect)
        engine.on(Events.CLOSED)(self.give_back)

    def take_over(self, state: State[Any, Any]) -> None:
        """Collect everything once, and switch Python's own collection off."""
        state.recall(self, Collector, saved=False).was_enabled = gc.isenabled()
        gc.collect()
        gc.disable()

    def collect(self, state: State[Any, Any]) -> None:
        """Collect the young generations."""
        gc.collect(1)

    def give_back(self, state: State[Any, Any]) -> None:
        """Switch Python's own collection on again, if it was on."""
        if state.recall(self, Collector, saved=False).was_enabled:
            gc.enable()


@dataclass(slots=True)
class Collector:
    """Whether Python collected by itself before the run."""

    was_enabled: bool = False
