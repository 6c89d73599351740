"""Ranks that stop or save inside an epoch, or leave an evaluation: all in the same iteration.

A collective cannot check this, since ranks that go on send other messages. So the ranks that were
asked to stop or save meet in the store of the process group, and a thread of each rank looks there
about once a second: if not all come, an error follows soon. Ranks that may leave an evaluation make
an appointment there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from threading import Event, Thread, get_ident
from time import monotonic

from ..events import NEVER
from .groups import default_store, rank, world_size
from .letters import wait_for
from .lost_host import limit_calls_of_store
from .stacks import answer

PLACE, APPOINTMENTS = "camshaft/stops", "camshaft/appointments"
LONGEST = 5.0
"""Seconds for which the end of a run waits for the thread."""
PERIOD, PER_SECOND = 1.0, 1000
"""Seconds between two looks of a thread, and the most looks per second of all ranks together."""

PATIENCE = 5.0
"""Seconds for which a rank waits for the others at a batch that all have named."""

_numbers = count()
"""Numbers of this process's runs: the same on all ranks, since ranks begin runs together."""


class Stops:
    """The meetings of ranks that stop or save inside an epoch, for one run."""

    def __init__(self, iteration: Callable[[], int]) -> None:
        """Begin to look for ranks that wait.

        Args:
            iteration: Gives the iteration before which this rank last passed a commit point.
        """
        self._iteration = iteration
        self._number, self._met = next(_numbers), 0
        self._is_over, self._trains = Event(), get_ident()
        limit_calls_of_store()
        self._thread = Thread(target=self._watch, name="stops of other ranks", daemon=True)
        self._thread.start()

    @property
    def _box(self) -> str:
        return f"{PLACE}/{self._number}/{self._met}"

    def meet(self, what: str, iteration: int) -> None:
        """Wait until all ranks have been asked to do the same in this iteration.

        Raises:
            RuntimeError: Another rank has gone on, or was asked to do something else.
        """
        store, box, size = default_store(), self._box, world_size()
        asked = f"rank {rank()} was asked to {what} in iteration {iteration}"
        self._met += 1
        store.set(f"{box}/at", str(iteration))
        store.add(f"{box}/{iteration} {what}", 1)
        store.add(box, 1)
        beyond = f"{box}/beyond"
        came = wait_for(store, box, size, lambda: bool(store.check([beyond])))
        if came < size and store.check([beyond]):
            raise _unlike(asked, store.get(beyond).decode())
        if came < size:
            raise _unlike(asked, f"{came} of {size} ranks were")
        if (alike := store.add(f"{box}/{iteration} {what}", 0)) < size:
            raise _unlike(asked, f"{size - alike} of {size} ranks to do something else")

    def end(self) -> None:
        """End the thread."""
        self._is_over.set()
        self._thread.join(LONGEST)  # it may be in a call of the store, whose host may be gone

    def _watch(self) -> None:
        with suppress(RuntimeError, ValueError):  # the store has ended
            store, answered = default_store(), ""
            while not self._is_over.wait(max(PERIOD, world_size() / PER_SECOND)):
                answered = answer(store, self._trains, answered)
                box = self._box
                if not store.check([box]):
                    continue
                at, now = int(store.get(f"{box}/at")), self._iteration()
                if now > at and box == self._box:
                    store.set(f"{box}/beyond", f"rank {rank()} went on behind that iteration")
                    return


class Appointment:
    """A batch of an evaluation before which all ranks stop, or none of them.

    Nothing is sent between ranks, as perhaps only some of them evaluate. A rank names a batch ahead
    of it. Each one that looks promises to wait there, or names a later batch if it is beyond. Where
    all have promised, all stop; if one does not come in time, all go on.
    """

    def __init__(self, name: str) -> None:
        self._store, self._box = default_store(), f"{APPOINTMENTS}/{name}"
        self._promised: set[int] = set()

    def meet(self, here: int, ahead: int, asked: int) -> tuple[int, int | None]:
        """The batch at which to look again, and what all ranks stop for, None to go on.

        Args:
            here: The batches that this rank has seen.
            ahead: The batch to name, if it has to name one.
            asked: What this rank was asked to stop for, a number of a signal; 0 if it was not.
        """
        store, size = self._store, world_size()
        while True:
            at, what = self._named()
            if not at and not asked:
                return 0, None
            if at < here:
                known = f"{at} {what}" if at else ""
                store.compare_set(self._box, known, f"{ahead} {what or asked}")
                continue
            if at not in self._promised:
                self._promised.add(at)
                store.add(f"{self._box}/{at}", 1)
            if at > here:
                return at, None
            end = monotonic() + PATIENCE
            came = wait_for(
                store, f"{self._box}/{at}", size, lambda: monotonic() > end or self._has_moved(at)
            )
            if came < size and self._named()[0] != at:
                continue
            return NEVER, what if self.decide(came == size) else None

    def decide(self, stop: bool) -> bool:
        """Decide for all ranks, unless one of them has; True if all ranks stop."""
        word: bytes = self._store.compare_set(f"{self._box}/end", "", "stop" if stop else "go on")
        return word == b"stop"

    def _has_moved(self, at: int) -> bool:
        return self._named()[0] != at or bool(self._store.check([f"{self._box}/end"]))

    def _named(self) -> tuple[int, int]:
        """The batch that was named, and what for; zeros if none was."""
        if not self._store.check([self._box]):
            return 0, 0
        at, what = map(int, self._store.get(self._box).split())
        return at, what


def _unlike(asked: str, others: str) -> RuntimeError:
    return RuntimeError(
        f"{asked}, and {others}. Inside an epoch, all ranks have to stop or save in the same "
        'iteration: if ranks.any_rank(flag): state.stop("why"). To stop at the end of an epoch, '
        "one rank is enough"
    )
