"""Garbage collection by a trigger."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any, ClassVar

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger


@dataclass(frozen=True, eq=False)
class GarbageCollection:
    """Collect garbage when a trigger fires, and at no other time of the run.

    By itself, Python collects after a number of allocations, which each rank reaches in another
    iteration: every collection of one rank makes all other ranks wait. With this handler all ranks
    collect in the same iteration, and only the young generations, which is quick. After the run
    Python collects as it did before.

    Objects in reference cycles stay in memory until the next collection. If memory grows too much,
    collect more often.

    Args:
        when: When to collect.
    """

    only_on_rank: ClassVar[None] = None
    """Each rank has its own, or none."""
    when: EventEnum | Trigger = Events.ITERATION_COMPLETED(every=1000)

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Switch Python's own collection off while the run lasts, and collect by the trigger."""
        engine.on(Events.STARTED)(self.take_over)
        engine.on(self.when, stage=Stage.REPORT)(self.collect)
        engine.on(Events.CLOSED)(self.give_back)

    def take_over(self, state: State[Any, Any]) -> None:
        """Collect everything once, and switch Python's own collection off."""
        state.recall(self, gc.isenabled, saved=False)
        gc.collect()
        gc.disable()

    def collect(self, state: State[Any, Any]) -> None:
        """Collect the young generations."""
        gc.collect(1)

    def give_back(self, state: State[Any, Any]) -> None:
        """Switch Python's own collection on again, if it was on."""
        if state.recall(self, gc.isenabled, saved=False):
            gc.enable()
