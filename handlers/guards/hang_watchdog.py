"""The stacks of all threads, when a run makes no progress."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from select import select
from threading import Thread, current_thread, main_thread
from types import FrameType
from typing import Any, ClassVar, TextIO

from ...engine import Engine, Events, State, ranks
from ..files import RemovedError, appending, refuse_removed

logger: logging.Logger = logging.getLogger("camshaft")

QUIT = signal.SIGQUIT
END = b"\0"  # no signal has this number


@dataclass(frozen=True, eq=False)
class HangWatchdog:
    """Print the stacks of all threads of this process when no iteration is completed for long.

    Python's faulthandler prints them from a thread of its own in C, so also while a collective or
    an extension holds the interpreter. Iterations of the run and of the engine's own evaluations
    count as progress; a save and the first compilation have to be done within `seconds` too. An
    iteration costs nothing: a thread looks at the clocks ten times within `seconds`.

    On several ranks a warning says where all ranks are, those that are behind first.

    To look without waiting, send SIGQUIT to the process of any rank: `kill -QUIT 1234` prints the
    same, and the run continues. A script with a handler of its own for SIGQUIT keeps it, and so
    does torchrun, which ends all ranks: do not send the signal to torchrun.

    A process has one such timer: of runs inside one another, the innermost that has a HangWatchdog
    uses it.

    Args:
        seconds: How long no progress may be made.
        path: The file to write to, one for each rank: `hang.txt` becomes `hang-rank0.txt`; by
            default stderr.
        exit: True to end the process with exit code 1, a fifth of `seconds` later.

    Raises:
        ValueError: `seconds` is not positive.
    """

    only_on_rank: ClassVar[None] = None
    """Each rank has its own, or none."""
    seconds: float = 600.0
    _: KW_ONLY
    path: str | PathLike[str] | None = None
    exit: bool = False

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"HangWatchdog(seconds={self.seconds!r}): needs a number above 0")

    @property
    def writes_files(self) -> bool:
        """True if of several replicas, each would write to the same file."""
        return self.path is not None

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Watch from the start of a run to its end, its evaluations included."""
        engine.on(Events.STARTED)(self.begin)
        engine.on(Events.CLOSED)(self.end)
        engine.evaluation.on(Events.STARTED)(self.begin_evaluation)
        engine.evaluation.on(Events.CLOSED)(self.end_evaluation)

    def begin(self, state: State[Any, Any]) -> None:
        """Start the thread."""
        if self.path is None and not (sys.__stderr__ or sys.stderr):
            raise RuntimeError(
                "HangWatchdog() writes to standard error, which is closed; name a file: "
                "HangWatchdog(path='hang.txt')"
            )
        state.recall(self, partial(ClockWatch, self, state), saved=False).start()

    def begin_evaluation(self, state: State[Any, Any]) -> None:
        """Look at the clock of an evaluation inside the run."""
        if watch := self._watch(state):
            watch.states.append(state)

    def end_evaluation(self, state: State[Any, Any]) -> None:
        """Look at the clock of the run around the evaluation again."""
        if watch := self._watch(state):
            watch.states.remove(state)

    def end(self, state: State[Any, Any]) -> None:
        """Stop the thread."""
        state.recall(self, partial(ClockWatch, self, state), saved=False).stop()

    def _watch(self, state: State[Any, Any]) -> ClockWatch | None:
        """The watch of the run around this evaluation; None if there is no such run."""
        outer = state.control.outer
        if outer is None or outer.engine.handlers is not state.engine.handlers:
            return None
        watch: ClockWatch = outer.recall(self, partial(ClockWatch, self, outer), saved=False)
        return watch


class ClockWatch:
    """The thread that looks at the clocks of one run, and restarts faulthandler's timer."""

    def __init__(self, settings: HangWatchdog, run: State[Any, Any]) -> None:
        self.states: list[State[Any, Any]] = [run]
        self._seconds, self._exit = settings.seconds, settings.exit
        self._file: TextIO = sys.__stderr__ or sys.stderr
        self._path: Path | None = None
        if settings.path is not None:
            path = Path(settings.path)
            self._path = path.with_stem(f"{path.stem}-rank{ranks.rank()}")
            self._file = self._opened(self._path)
        self._woken, self._wake = os.pipe()
        self._has_signal = False
        self._thread = Thread(target=self._look, name="HangWatchdog", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        os.set_blocking(self._wake, False)  # Python's handler of signals must not wait
        if current_thread() is main_thread() and signal.getsignal(QUIT) is signal.SIG_DFL:
            self._has_signal = True
            if (other := signal.set_wakeup_fd(self._wake)) != -1:  # as in a notebook
                signal.set_wakeup_fd(other)

            def wake(number: int, _frame: FrameType | None) -> None:
                if other != -1:  # its owner reads what Python writes there
                    os.write(self._wake, bytes([number]))

            signal.signal(QUIT, wake)
            faulthandler.register(QUIT, self._file, chain=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no longer."""
        os.write(self._wake, END)
        if self._thread.is_alive():
            self._thread.join()
        if self._has_signal:
            faulthandler.unregister(QUIT)
            signal.signal(QUIT, signal.SIG_DFL)
            if (other := signal.set_wakeup_fd(-1)) != self._wake:
                signal.set_wakeup_fd(other)
        os.close(self._woken)
        os.close(self._wake)
        faulthandler.cancel_dump_traceback_later()
        if self._file not in (sys.__stderr__, sys.stderr):
            self._file.close()

    def _look(self) -> None:
        seen: Any = None
        since = 0.0
        has_warned = False
        while True:
            now = [(id(s), s.iteration, s.epoch) for s in tuple(self.states)]
            if now != seen:
                seen, since, has_warned = now, time.monotonic(), False
                self._open_again_if_removed()
                # A process that is ended says so before, at the last look but one.
                later = self._seconds * (1.2 if self._exit else 1)
                faulthandler.dump_traceback_later(later, exit=self._exit, file=self._file)
            elif not has_warned and time.monotonic() - since >= self._seconds:
                has_warned = True
                logger.warning(
                    "HangWatchdog: no iteration was completed for %g seconds, after iteration %d; "
                    "the stacks of all threads are in %s%s",
                    *(self._seconds, self.states[0].iteration, self._path or self._file.name),
                    ", and the process is ended" if self._exit else "",
                )
                self._tell_of_ranks()
            woken, _, _ = select([self._woken], [], [], self._seconds / 10)
            signals = os.read(self._woken, 1024) if woken else b""
            if END in signals:
                return
            if QUIT in signals:
                where = "SIGQUIT: iteration %d; the stacks of all threads are in %s"
                logger.warning(where, self.states[-1].iteration, self._path or self._file.name)
                self._tell_of_ranks()

    @staticmethod
    def _tell_of_ranks() -> None:
        if ranks.world_size() > 1:
            with suppress(RuntimeError, ValueError):  # the store has ended
                logger.warning("HangWatchdog: %s", ranks.stacks_of_all())

    def _open_again_if_removed(self) -> None:
        if self._path is None:
            return
        try:
            refuse_removed(self._file.fileno(), self._path)
        except RemovedError as error:
            with suppress(OSError):  # the next progress tries again
                new = self._opened(self._path)
                faulthandler.cancel_dump_traceback_later()  # it writes to the old file
                if self._has_signal:
                    faulthandler.register(QUIT, new, chain=True)
                self._file.close()
                self._file = new
                logger.warning("HangWatchdog: %s", error)

    @staticmethod
    def _opened(path: Path) -> TextIO:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(appending(path), "a")
