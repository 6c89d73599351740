"""Ranks that stop or save inside an epoch: all in the same iteration, else an error follows soon.

A collective cannot check this, since ranks that go on send other messages. So the ranks that were
asked to stop or save meet in the store of the process group, and a thread of each rank looks there
about once a second. Of a rank that was killed, those on its machine see that its process has ended.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event, Thread, get_ident
from typing import Any

from .failure import AnotherRankError
from .groups import default_store, rank, world_size
from .letters import wait_for
from .stacks import answer

PLACE = "camshaft/stops"
LONGEST = 5.0
"""Seconds for which the end of a run waits for the thread."""
PERIOD, PER_SECOND = 1.0, 1000
"""Seconds between two looks of a thread, and the most looks per second of all ranks together."""

ENDED = " has ended"
BOOT = Path("/proc/sys/kernel/random/boot_id")
SOCKETS = Path("/proc/self/fd")
INTERNET = (socket.AF_INET, socket.AF_INET6)
TRIES = 4
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
        self._home = f"{PLACE}/{self._number}/{_home()}"
        with suppress(RuntimeError):  # a store of another kind cannot append
            default_store().append(self._home, f"{rank()} {os.getpid()}\n")
        self._thread = Thread(target=self._watch, name="stops of other ranks", daemon=True)
        self._thread.start()

    @property
    def _box(self) -> str:
        return f"{PLACE}/{self._number}/{self._met}"

    def meet(self, what: str, iteration: int) -> None:
        """Wait until all ranks have been asked to do the same in this iteration.

        Raises:
            AnotherRankError: The process of another rank has ended.
            RuntimeError: Another rank has gone on, or was asked to do something else.
        """
        store, box, size = default_store(), self._box, world_size()
        asked = f"rank {rank()} was asked to {what} in iteration {iteration}"
        self._met += 1
        store.set(f"{box}/at", str(iteration))
        store.add(f"{box}/{iteration} {what}", 1)
        store.add(box, 1)
        beyond, others = f"{box}/beyond", self._neighbors()

        def is_over() -> bool:
            if ended := [number for number, pid in others.items() if _has_ended(pid)]:
                store.set(beyond, f"the process of rank {ended[0]}{ENDED}")
            return bool(store.check([beyond]))

        came = wait_for(store, box, size, is_over)
        if came < size and store.check([beyond]):
            if (why := store.get(beyond).decode()).endswith(ENDED):
                raise AnotherRankError(f"{asked}, and {why}")
            raise _unlike(asked, why)
        if came < size:
            missing = f"{size - came} of {size} ranks gave no answer"
            raise _unlike(asked, f"{missing}: they were not asked, were killed, or hang")
        if (alike := store.add(f"{box}/{iteration} {what}", 0)) < size:
            raise _unlike(asked, f"{size - alike} of {size} ranks to do something else")

    def end(self) -> None:
        """End the thread."""
        self._is_over.set()
        self._thread.join(LONGEST)  # it may be in a call of the store, whose host may be gone

    def _neighbors(self) -> dict[int, int]:
        """By their ranks: the processes of the others on this machine."""
        store = default_store()
        said = store.get(self._home).decode() if store.check([self._home]) else ""
        found = {int(number): int(pid) for number, pid in map(str.split, said.splitlines())}
        return {number: pid for number, pid in found.items() if number != rank()}

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


def _home() -> str:
    """What the processes have in common whose numbers mean the same; only Linux tells it."""
    with suppress(OSError):
        return f"{BOOT.read_text().strip()}-{os.readlink('/proc/self/ns/pid')}"
    return f"unknown-{rank()}"


def _has_ended(pid: int) -> bool:
    """True if a process of this machine is gone, or only waits for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in b"ZX"
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _unlike(asked: str, others: str) -> RuntimeError:
    return RuntimeError(
        f"{asked}, and {others}. Inside an epoch, all ranks have to stop or save in the same "
        'iteration: if ranks.any_rank(flag): state.stop("why"). To stop at the end of an epoch, '
        "one rank is enough"
    )


def limit_calls_of_store() -> None:
    """Let a call of the store fail once its host was silent for the timeout of the group.

    torch gives no limit to a single call. If the store's host loses its power or its network, a
    call waits for as long as the system sends again, a quarter of an hour or for ever. A host whose
    processes hang still answers. Only Linux tells a process its sockets.
    """
    store = default_store()
    while (inner := getattr(store, "underlying_store", None)) is not None:
        store = inner
    port, limit = getattr(store, "port", None), store.timeout.total_seconds()
    for each in SOCKETS.iterdir() if port and SOCKETS.is_dir() else ():
        with suppress(OSError):  # it is closed by now, or not connected
            if os.readlink(each).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(each.name))) as own:
                    if own.family in INTERNET and own.getpeername()[1] == port:
                        _limit(own, limit)


def _limit(own: Any, seconds: float) -> None:
    """Give up what nobody acknowledges; ask a silent host from time to time whether it is there."""
    pause = max(1, int(seconds / TRIES))
    own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, pause)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, pause)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, TRIES)
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
