"""When ranks look whether they have to leave the evaluation that they are in."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

from ...engine import State, ranks
from ...engine.events import NEVER
from ...engine.state import can_leave

PERIOD, AHEAD = 1.0, 2.5
"""Seconds from one look to the next, and from a signal to the batch at which ranks meet."""

_numbers = count()
"""Numbers of this process's runs: the same on all ranks, since ranks begin runs together."""


class Leaving:
    """The looks of one rank at the evaluations of a run: about one a second, each on its own.

    A look asks the store of the process group, so that a signal of one rank is enough.
    """

    def __init__(self, state: State[Any, Any]) -> None:
        self.due: int = 0
        """The batch of the evaluation at which to look."""
        self._state, self._run = state, next(_numbers)
        self._place = 0, 0
        self._evaluation: State[Any, Any] | None = None

    def look(self, evaluation: State[Any, Any], received: int | None) -> int | None:
        """The number of the signal for which all ranks leave the evaluation now, if they do."""
        here = evaluation.iteration
        if evaluation is not self._evaluation:
            self._begin(evaluation)
        elif here < self.due:
            return None
        a_second = here / max(time.monotonic() - evaluation.control.began, 1e-9)
        ahead = here + 1 + int(AHEAD * a_second)
        if not can_leave(self._state):
            self.due = NEVER
            self._appointment.decide(stop=False)
            return None
        again, number = self._appointment.meet(here, ahead, received or 0)
        self.due = again or here + 1 + int(PERIOD * a_second)
        return number

    def _begin(self, evaluation: State[Any, Any]) -> None:
        """Make an appointment for this evaluation, by a name that is the same on all ranks."""
        iteration, number = self._place
        again = iteration == self._state.iteration
        self._place = self._state.iteration, number + 1 if again else 1
        self._evaluation = evaluation
        name = "/".join(map(str, (self._run, *self._place)))
        self._appointment = ranks.Appointment(name)
