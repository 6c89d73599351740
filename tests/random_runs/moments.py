"""The moments of a run at which it can be left: between handlers, at operations on files, at saves.

What a `kill -9` leaves is the disk alone. So a run is killed in its process by a copy of its
directory as it is in that moment; the run itself is stopped and forgotten.
"""

import os
import shutil
import stat
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from unittest.mock import patch

from camshaft import Events

CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink"}
LISTENING = []
"""The moments of the run under way: an audit hook stays for the life of its process."""


class Killed(BaseException):
    """Ends a run whose directory has been copied."""


@dataclass(frozen=True)
class Kill:
    """Where to leave a run: at which kind of moment, after how many thousandths of the whole run's.

    That is a `call` of a handler, one in an event such as `SAVING`, or an `operation` on files; a
    `torn` one leaves half of the file that is being written. An `interrupt` is no kill: before a
    handler the run is asked to save and to end.
    """

    at: str
    part: int
    torn: bool = False


@dataclass
class Moments:
    """Counts the moments of a run, and leaves it at one of them."""

    place: Path
    copy: Path
    kill: Kill | None = None
    totals: Counter = field(default_factory=Counter)
    """The moments of the whole run, by kind."""
    counts: Counter = field(default_factory=Counter)
    state: object = None
    is_left: bool = False
    is_closing: bool = False
    is_saving: bool = False
    """True if the run was left between the first file of a checkpoint and its rename."""
    known: frozenset = frozenset()
    """The drafts that earlier kills have left."""
    _lock: RLock = field(default_factory=RLock)
    """While the directory is copied, a thread that writes waits."""

    @contextmanager
    def watching(self, engine):
        """Within a `with` block, see what this engine calls, and all changes of files."""
        LISTENING.append(self)
        self.known = self._drafts()
        patches = [patch.object(os, name, self._synchronised(name)) for name in ("fsync",)]
        try:
            with engine.watching(self._watch), patches[0]:
                yield
        finally:
            LISTENING.remove(self)

    def reach(self, kind, torn=None):
        """Count a moment, and leave the run here if it is the one that was meant."""
        with self._lock:
            if not self.is_left:
                self._reach(kind, torn)

    def _reach(self, kind, torn):
        self.counts[kind] += 1
        if self.kill is None or self.kill.at != kind:
            return
        if self.counts[kind] == 1 + self.kill.part * self.totals[kind] // 1000:
            self.is_left = True
            if kind == "interrupt":
                self.state.interrupt("asked to")
                return
            self.is_saving = bool(self._drafts() - self.known)
            self._leave(torn if self.kill.torn else None)
            self._stop()

    def _leave(self, torn):
        copy(self.place, self.copy)
        if torn is not None:
            os.truncate(self.copy / torn, (self.place / torn).stat().st_size // 2)

    def _drafts(self):
        return frozenset(self.place.glob(".tmp-iteration-*"))

    def _stop(self):
        """Stop a run that was left; one that is closing its files and threads ends by itself."""
        if not self.is_closing:
            raise Killed

    def _watch(self, event, receiver, function):
        def call(state):
            self.state = self.state or state
            self.is_closing = self.is_closing or event in {Events.FAILED, Events.CLOSED}
            if self.is_left and self.kill.at != "interrupt":
                self._stop()  # it was left by the thread that writes
            self.reach("call")
            self.reach(event.name)
            if state.training:
                self.reach("interrupt")
            return function(state)

        return call

    def _synchronised(self, name):
        original = getattr(os, name)

        def call(descriptor):
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            is_draft = ".tmp-" in str(path) and stat.S_ISREG(os.fstat(descriptor).st_mode)
            self.reach("operation", path.relative_to(self.place) if is_draft else None)
            return original(descriptor)

        return call


def copy(place, to):
    """Copy a directory; a file of the thread that is not waiting may go meanwhile."""
    listening, LISTENING[:] = LISTENING[:], []
    try:
        for _ in range(10):
            try:
                shutil.copytree(place, to, copy_function=shutil.copyfile)
                return
            except (shutil.Error, FileNotFoundError):
                shutil.rmtree(to)
    finally:
        LISTENING[:] = listening


def _hear(event, arguments):
    if not LISTENING:
        return
    if event == "open":
        flags = arguments[2]
        if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
    elif event not in CHANGES:
        return
    LISTENING[-1].reach("operation")


sys.addaudithook(_hear)
