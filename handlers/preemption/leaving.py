"""Ranks that leave an evaluation: all before the same batch, or none of them."""

from __future__ import annotations

import sys
import time
from itertools import count
from typing import Any

from ...engine import State, ranks
from ...engine.state import can_leave

PERIOD, AHEAD, PATIENCE = 1.0, 2.5, 5.0
"""Seconds from one look to the next, from a signal to the batch at which ranks meet, and for which
they wait there."""

_numbers = count()
"""Numbers of this process's runs: the same on all ranks, since ranks begin runs together."""


class Leaving:
    """Finds a batch at which all ranks leave an evaluation, or none of them.

    Nothing is sent from rank to rank, as perhaps only some of them evaluate. A rank that got a
    signal names a batch ahead of it in the store of the process group. Each one looks there about
    once a second, and promises to wait at this batch, or names a later one if it is beyond. Where
    all have promised, all leave; if one does not come in time, the evaluation is made to its end.
    """

    def __init__(self, state: State[Any, Any]) -> None:
        self.due: int = 0
        """The batch of the evaluation at which to look."""
        self._state, self._run, self._place = state, next(_numbers), (0, 0)
        self._store, self._box = ranks.default_store(), ""
        self._size = ranks.world_size()  # an evaluation may act as that of the only rank
        self._evaluation: State[Any, Any] | None = None
        self._promised: set[int] = set()

    def look(self, evaluation: State[Any, Any], received: int | None) -> int | None:
        """The number of the signal for which all ranks leave the evaluation now, if they do."""
        if evaluation is not self._evaluation:
            self._begin(evaluation)
        if (here := evaluation.iteration) < self.due:
            return None
        pace = here / max(time.monotonic() - evaluation.control.began, 1e-9)
        self.due = here + 1 + int(PERIOD * pace)
        at, number = self._named()
        if at < here and (at or received):
            known, ahead = f"{at} {number}" if at else "", here + 1 + int(AHEAD * pace)
            self._store.compare_set(self._box, known, f"{ahead} {number or received}")
            at, number = self._named()
        return number if at >= here and self._comes(here, at) else None

    def _comes(self, here: int, at: int) -> bool:
        """Promise to wait at a batch; there, wait, and tell whether all ranks leave."""
        self.due, box = at, f"{self._box}/{at}"
        if not can_leave(self._state):
            return self._is_decided("stay")
        if at not in self._promised:
            self._promised.add(at)
            self._store.add(box, 1)
        if here < at:
            return False
        end = time.monotonic() + PATIENCE

        def is_over() -> bool:
            return time.monotonic() > end or self._named()[0] != at

        if ranks.wait_for(self._store, box, self._size, is_over) == self._size:
            return self._is_decided("leave")
        if self._named()[0] == at:
            return self._is_decided("stay")
        return False

    def _is_decided(self, word: str) -> bool:
        """Decide for all ranks, unless one of them has decided; True if all leave."""
        self.due = sys.maxsize
        decided: bytes = self._store.compare_set(f"{self._box}/decided", "", word)
        return decided == b"leave"

    def _named(self) -> tuple[int, int]:
        """The batch that was named, and the signal; zeros if none was."""
        if not self._store.check([self._box]):
            return 0, 0
        at, number = map(int, self._store.get(self._box).split())
        return at, number

    def _begin(self, evaluation: State[Any, Any]) -> None:
        """Begin to look at an evaluation, by a name that is the same on all ranks."""
        (iteration, number), now = self._place, self._state.iteration
        self._place = now, number + 1 if iteration == now else 1
        self._box = "/".join(map(str, ("camshaft/left", self._run, *self._place)))
        self._evaluation, self.due = evaluation, 0
        self._promised.clear()
