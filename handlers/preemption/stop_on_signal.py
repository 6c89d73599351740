"""A stop by a signal, for jobs that are preempted and for Ctrl-C."""

from __future__ import annotations

import logging
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

from ...engine import ranks
from ...engine.engine import Engine
from ...engine.events import Events, Stage
from ...engine.state import State
from .watchdog import Watchdog, kill_children

logger = logging.getLogger("camshaft")

USUAL = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGUSR1") if hasattr(signal, name)
)
AGREE = (Events.ITERATION_COMPLETED, Events.EPOCH_COMPLETED, Events.COMPLETED)


@dataclass(frozen=True, eq=False, init=False)
class StopOnSignal:
    """Save and stop when a signal asks the process to end, then exit with 128 + the signal.

    The step in progress is finished, an evaluation too, and then `state.interrupt` is carried out:
    one checkpoint of a whole step, if there is a `Checkpoint`, and no more than that. The script
    goes on from there when it is started again. Exit codes are 143 for SIGTERM, 130 for SIGINT,
    138 for SIGUSR1 on Linux; also if the signal comes when the run is as good as over. If the run
    fails, its error comes out instead.

    A line on stderr tells of the first signal. A second one is left to what was there before this
    handler: by default it ends the process at once. Functions that were installed before are
    called at the first one too; Python's own for Ctrl-C, which raises KeyboardInterrupt, is not.
    All are put back at the end of the run.

    Several ranks ask each other after each iteration, and stop together if one got a signal.

    Args:
        signals: The signals; SIGTERM, SIGINT and SIGUSR1 if none is named.
        deadline: So many seconds after the first signal the process ends with the same exit code,
            whatever it is doing. The checkpoint before is as it was.
        exit: False to let `run` return, with `state.stop_reason` "SIGTERM", say.

    Raises:
        TypeError: What is given is no signal.
        ValueError: It is one that cannot be caught, or the deadline is not positive.

    >>> StopOnSignal(signal.SIGKILL)
    Traceback (most recent call last):
    ...
    ValueError: StopOnSignal(SIGKILL): no process can catch this one; SIGTERM, say, it can
    """

    signals: tuple[signal.Signals, ...]
    deadline: float | None
    exit: bool

    def __init__(
        self, *signals: signal.Signals, deadline: float | None = None, exit: bool = True
    ) -> None:
        for each in signals:
            if not isinstance(each, signal.Signals):
                raise TypeError(
                    f"StopOnSignal got {each!r} for a signal; it needs some such as "
                    "signal.SIGTERM, and all else by keyword: StopOnSignal(deadline=30)"
                )
            if each.name in ("SIGKILL", "SIGSTOP"):
                raise ValueError(
                    f"StopOnSignal({each.name}): no process can catch this one; SIGTERM, say, "
                    "it can"
                )
        if deadline is not None and not deadline > 0:
            raise ValueError(f"StopOnSignal(deadline={deadline!r}): needs seconds greater than 0")
        object.__setattr__(self, "signals", signals or USUAL)
        object.__setattr__(self, "deadline", deadline)
        object.__setattr__(self, "exit", exit)

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Install signal handlers when the run starts, and put the old ones back at its end."""
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.open)
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.close)  # when all is on the disk

    def open(self, state: State[Any, Any]) -> None:
        """Install the signal handlers.

        Raises:
            RuntimeError: This is not the main thread, the only one that can.
        """
        if current_thread() is not main_thread():
            raise RuntimeError(
                "StopOnSignal: only the main thread of a process can handle signals, and this run "
                f"is in {current_thread().name!r}; leave it out here, and call "
                "state.interrupt(reason) to stop"
            )
        state.recall(self, partial(Watch, state), saved=False).open(self.signals, self.deadline)
        if ranks.world_size() > 1:  # alone, there is nobody to ask
            for event in AGREE:
                state.engine.signal(event).connect(self.agree, sender=state)

    def agree(self, state: State[Any, Any]) -> None:
        """Stop on all ranks if one of them got a signal."""
        watch = state.recall(self, partial(Watch, state), saved=False)
        if watch.agreed is None and ranks.any_rank(watch.received is not None):
            numbers = ranks.gathered(watch.received)
            watch.agreed = next(number for number in numbers if number is not None)
            state.interrupt(signal.Signals(watch.agreed).name)

    def close(self, state: State[Any, Any]) -> None:
        """Put the old signal handlers back, and exit if there was a signal.

        Raises:
            SystemExit: There was one.
        """
        watch = state.recall(self, partial(Watch, state), saved=False)
        watch.close()
        for event in AGREE:
            state.engine.signal(event).disconnect(self.agree, sender=state)
        if (number := watch.received or watch.agreed) is None:
            return
        name = signal.Signals(number).name
        # After the last commit point there is nothing new to save, hence nothing to warn of.
        state.control.saves[:] = [save for save in state.control.saves if save != (name, None)]
        if self.exit and state.error is None and state.parent is None:
            logger.info("exits with %d, as %s asked it to", 128 + number, name)
            raise SystemExit(128 + number)


class Watch:
    """The signal handler of one run."""

    def __init__(self, state: State[Any, Any]) -> None:
        """Get ready; `open` installs it."""
        self.state = state
        self.received: int | None = None
        """The first signal that this process got."""
        self.agreed: int | None = None
        """The one that all ranks stop for."""
        self._before: dict[int, Any] = {}
        self._process = os.getpid()
        self._alone = ranks.world_size() == 1
        self._watchdog: Watchdog | None = None

    def open(self, signals: tuple[signal.Signals, ...], deadline: float | None) -> None:
        """Install it in the place of what is there."""
        if deadline is not None:
            self._watchdog = Watchdog(signals, deadline)
        self._before = {number: signal.getsignal(number) for number in signals}
        for number in signals:
            signal.signal(number, self)

    def close(self) -> None:
        """Put back what was there."""
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before.clear()
        if self._watchdog is not None:
            self._watchdog.close()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Ask for a save and a stop; no more, since anything may be half done just now."""
        forked = os.getpid() != self._process
        if forked or self.received is not None:
            self._give_way(number, forked)
            return
        self.received = number
        name = signal.Signals(number).name
        with suppress(OSError):  # not by print or logging, which may be in the middle of a line
            os.write(2, f"{name}: stops after this step; a second one ends it now\n".encode())
        if self._alone:
            self.state.interrupt(name)
        before = self._before[number]
        if callable(before) and before is not signal.default_int_handler:
            before(number, frame)

    def _give_way(self, number: int, forked: bool) -> None:
        before = self._before[number]
        disposition = before if callable(before) else signal.SIG_DFL
        signal.signal(number, disposition)
        if disposition is signal.SIG_DFL and not forked:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's raises when a worker dies
            kill_children()
        signal.raise_signal(number)
