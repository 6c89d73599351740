"""Ranks that do what only some of them may do: all at the same place, else an error follows soon.

That is to stop or save inside an epoch, to evaluate, and what a `where=` decides. A collective
cannot check this, since ranks that go on send other messages. So these ranks meet in the store of
the process group, and a thread of each rank looks there about once a second. Of a rank that was
killed, those on its machine see that its process has ended.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Thread, get_ident
from typing import Any, ClassVar

from .failure import AnotherRankError
from .groups import Alone, default_store, rank, world_size
from .letters import wait_for
from .stacks import answer

PLACE = "camshaft/meetings"
LONGEST = 5.0
"""Seconds for which the end of a run waits for the thread."""
PERIOD, PER_SECOND = 1.0, 1000
"""Seconds between two looks of a thread, and the most looks per second of all ranks together."""
KEPT = 2
"""The latest meetings that stay in the store: a thread of a slow rank may be reading of one."""
ENDED = " has ended"
BOOT = Path("/proc/sys/kernel/random/boot_id")
SOCKETS = Path("/proc/self/fd")
INTERNET = (socket.AF_INET, socket.AF_INET6)
TRIES = 4
_numbers = count()
"""Numbers of this process's runs: the same on all ranks, since ranks begin runs together."""


class Meetings:
    """The meetings of the ranks of one run, and of what they do together behind it."""

    latest: ClassVar[Meetings | None] = None
    """Those of the run that has begun last, or of the ranks before their first run."""

    def __init__(self, passed: Callable[[], int]) -> None:
        """Begin to look for ranks that wait.

        Args:
            passed: Counts the iterations that this rank has begun, and its waits for the others
                between them: a number that is the same on all ranks where they are at one place.
        """
        self._passed = passed
        self._number, self._met = next(_numbers), 0
        self._keys: list[list[str]] = []
        """What the latest meetings have left in the store."""
        self._is_over, self._trains = Event(), get_ident()
        Meetings.latest = self
        limit_calls_of_store()
        self._home = f"{PLACE}/{self._number}/{_home()}"
        with suppress(RuntimeError):  # a store of another kind cannot append
            default_store().append(self._home, f"{rank()} {os.getpid()}\n")
        self._thread = Thread(target=self._watch, name="meetings of ranks", daemon=True)
        self._thread.start()

    @classmethod
    def outside(cls) -> Meetings:
        """Those for what ranks do outside of runs: before the first run, or behind the latest."""
        if (latest := cls.latest) is None:
            (latest := cls(int)).end()
        return latest

    @property
    def _box(self) -> str:
        return f"{PLACE}/{self._number}/{self._met}"

    def meet(self, does: str, advice: str) -> None:
        """Wait until all ranks are about to do the same.

        Args:
            does: What this rank does, and where, such as "was asked to save in iteration 7".
            advice: How to do it on all ranks, for the error.

        Raises:
            AnotherRankError: The process of another rank has ended.
            RuntimeError: Another rank has gone on, or does something else.
        """
        store, box, size = default_store(), self._box, world_size()
        own, key = f"rank {rank()} {does}", f"{box}/{does}"
        self._met += 1
        store.set(f"{box}/at", str(self._passed()))
        store.add(key, 1)
        store.add(box, 1)
        beyond, others = f"{box}/beyond", self._neighbors()

        def is_over() -> bool:
            if ended := [number for number, pid in others.items() if _has_ended(pid)]:
                store.set(beyond, f"the process of rank {ended[0]}{ENDED}")
            return bool(store.check([beyond]))

        came, others_do = wait_for(store, box, size, is_over), ""
        if came < size and store.check([beyond]):
            if (others_do := store.get(beyond).decode()).endswith(ENDED):
                hint = f". {advice}" if self._is_over.is_set() else ""
                raise AnotherRankError(f"{own}, and {others_do}{hint}")
        elif came < size:
            missing = f"{size - came} of {size} ranks gave no answer"
            others_do = f"{missing}: they do not come here, were killed, or hang"
        elif (alike := store.add(key, 0)) < size:
            others_do = f"{size - alike} of {size} ranks do something else"
        if others_do:
            raise RuntimeError(f"{own}, and {others_do}. {advice}")
        self._keys.append([f"{box}/at", key, box])
        for each in self._keys.pop(0) if len(self._keys) > KEPT else ():
            if rank() == 0:
                store.delete_key(each)

    @contextmanager
    def first(self, does: str, advice: str) -> Generator[None]:
        """Within a `with` block that only some ranks may enter, meet before the first message."""
        outer, Alone.meet = Alone.meet, partial(self.meet, does, advice)
        try:
            yield
        finally:
            Alone.meet = outer

    def leave(self, does: str = "has come to its end") -> None:
        """Tell a rank that waits for this one, or will, what this one does instead."""
        with suppress(RuntimeError):  # a fake store cannot be written to
            default_store().set(f"{self._box}/beyond", f"rank {rank()} {does}")
        Meetings.latest = None  # another process group may have this store

    def end(self) -> None:
        """End the thread."""
        self._passed = partial(int, self._passed())  # the former one holds the state of the run
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
                at, now = int(store.get(f"{box}/at")), self._passed()
                if now > at and box == self._box:
                    store.set(f"{box}/beyond", f"rank {rank()} went on without it")
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
