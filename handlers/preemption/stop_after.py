"""A stop before a job's time limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...engine import Engine, Events, Firing, State
from ...engine.state import leave_evaluations


@dataclass(frozen=True, eq=False)
class StopAfter:
    """Save and stop after a time, so that the script goes on when it is started again.

    Time is wall-clock time since this `run` was called. It begins anew when a run is resumed, since
    the limit is the job's. Choose less than the job's limit: the time before the run, the iteration
    or evaluation in progress and the save come on top. Rank 0's clock decides for all ranks.

    Args:
        seconds: After this time `state.interrupt` is called, and `run` returns; `math.inf` for no
            limit.

    Raises:
        ValueError: `seconds` is not positive.

    >>> StopAfter(seconds=3600 * 11.5)  # in a job of 12 hours
    StopAfter(seconds=41400.0)
    """

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"StopAfter(seconds={self.seconds!r}): needs a time greater than 0")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Look after each iteration."""
        if self.seconds < math.inf:
            engine.on(Events.ITERATION_COMPLETED)(self.look)

    def look(self, state: State[Any, Any]) -> None:
        """Interrupt the run if the time is over."""
        clock = state.recall(self, partial(Firing, state.control.began), saved=False)
        if clock.is_over(self.seconds, state.iteration, local=False):
            state.interrupt(f"{self.seconds:g} seconds are over")

    def ask(self, state: State[Any, Any]) -> None:
        """Interrupt it so, and leave what waits: for a handler that waits, on all ranks at once."""
        clock = Firing(state.control.began)
        if self.seconds < math.inf and clock.is_over(self.seconds, state.iteration, local=False):
            state.interrupt(f"{self.seconds:g} seconds are over")
            leave_evaluations(state, state, "the time is over")
