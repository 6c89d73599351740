"""When ranks ask one another whether one of them got a signal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...engine import State, ranks

if TYPE_CHECKING:
    from torch import Tensor

SHORTEST, LONGEST = 1.0, 10.0
"""The least and the most seconds between two questions, approximately."""
SHARE = 0.01
"""The largest share of the time that questions may take, as far as `LONGEST` allows."""


class Questions:
    """Chooses the iterations in which all ranks ask: few, the same on each rank, and in time."""

    def __init__(self, state: State[Any, Any], every: int | None) -> None:
        self.every = every
        self.due = state.iteration + (every or 1)
        """The iteration of the next question."""
        self._step = 1
        self._asked_in = state.iteration
        self._asked_at = time.monotonic()
        self._took = 0.0

    def ask(self, state: State[Any, Any], received: int | None) -> int | None:
        """The largest number of a signal that a rank got; None if no rank got one.

        Rank 0 also decides, by its clock, after how many iterations they ask again.
        """

        def decide(rows: Tensor) -> Tensor:
            found = rows[0].clone()
            found[0], found[1] = rows[:, 0].max(), self._plan(state.iteration, began)
            return found

        began = time.monotonic()
        number, step = ranks.decided([received or 0, 0], decide)
        self._took = time.monotonic() - began
        self.due = state.iteration + (self.every or step)
        return int(number) or None

    def _plan(self, iteration: int, now: float) -> int:
        done, passed = iteration - self._asked_in, now - self._asked_at
        self._asked_in, self._asked_at = iteration, now
        if done:  # at the end of an epoch the ranks may ask twice in one iteration
            period = min(max(SHORTEST, self._took / SHARE), LONGEST)
            in_time = int(done * period / max(passed, 1e-9))
            self._step = max(1, min(in_time, 2 * self._step))
        return self._step
