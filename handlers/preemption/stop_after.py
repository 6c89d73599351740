"""A stop in time, for jobs with a limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...engine.engine import Engine
from ...engine.events import Events
from ...engine.moments import Firing
from ...engine.state import State


@dataclass(frozen=True, eq=False)
class StopAfter:
    """Save and stop when so much time has passed, so that the script goes on when started again.

    Time is wall-clock time since this `run` was called: it begins anew when a run is resumed, for
    it is a job that has a limit. Leave room in it for what comes before the run, for the iteration
    or evaluation in progress, and for the save. Rank 0's clock decides for all ranks.

    Args:
        seconds: After this time `state.interrupt` is called, and `run` returns; `math.inf` for no
            limit.

    Raises:
        ValueError: It is not positive.

    >>> StopAfter(seconds=3600 * 11.5)  # in a job of 12 hours
    StopAfter(seconds=41400.0)
    """

    seconds: float

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if not self.seconds > 0:
            raise ValueError(f"StopAfter(seconds={self.seconds!r}): needs a time greater than 0")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Look after each iteration whether it is time to look at the clock."""
        if self.seconds < math.inf:
            engine.on(Events.ITERATION_COMPLETED)(self.look)

    def look(self, state: State[Any, Any]) -> None:
        """Interrupt the run if the time is over."""
        clock = state.recall(self, partial(Firing, state.control.began), saved=False)
        if clock.is_over(self.seconds, state.iteration, local=False):
            state.interrupt(f"{self.seconds:g} seconds are over")
