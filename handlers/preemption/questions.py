"""Questions of ranks to one another whether one of them got a signal."""

from __future__ import annotations

import time
from typing import Any

from ...engine import State, ranks

PERIOD = 1.0
"""Seconds from one question to the next, about."""


class Questions:
    """Finds the iterations in which all ranks ask: few, the same on each, and often enough."""

    def __init__(self, state: State[Any, Any], every: int | None) -> None:
        self.every = every
        self.due = state.iteration + (every or 1)
        """The iteration of the next question."""
        self._step = 1
        self._asked_in = state.iteration
        self._asked_at = time.monotonic()

    def ask(self, state: State[Any, Any], received: int | None) -> int | None:
        """The largest number of a signal that one of the ranks got; None if none of them did.

        One message. It brings the time of rank 0 too, whose clock decides for all.
        """
        import torch

        passed = time.monotonic() - self._asked_at if ranks.rank() == 0 else 0.0
        told = torch.tensor([received or 0, passed], dtype=torch.float64)
        number, passed = ranks.largest(told).tolist()
        self._asked_at = time.monotonic()
        self._plan(state.iteration, passed)
        return int(number) or None

    def _plan(self, iteration: int, passed: float) -> None:
        done, self._asked_in = iteration - self._asked_in, iteration
        if done:  # at the end of an epoch the ranks may ask twice in one iteration
            in_time = int(done * PERIOD / max(passed, 1e-9))
            self._step = max(1, min(in_time, 2 * self._step))
        self.due = iteration + (self.every or self._step)
