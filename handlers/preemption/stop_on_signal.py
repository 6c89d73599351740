"""A stop by a signal, for jobs that are preempted and for Ctrl-C."""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from dataclasses import dataclass
from functools import partial
from threading import current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...engine import Engine, Events, Stage, State, ranks
from ...engine.state import leave_evaluations, under_way
from .leaving import Leaving
from .watchdog import Watchdog, kill_children, say

if TYPE_CHECKING:
    from torch import Tensor

logger: logging.Logger = logging.getLogger("camshaft")

USUAL = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGUSR1") if hasattr(signal, name)
)
AT_THE_END = (Events.EPOCH_COMPLETED, Events.COMPLETED)
SHORTEST, LONGEST = 1.0, 10.0
"""The least and the most seconds between two questions, approximately."""
FRACTION = 0.01
"""The largest fraction of the time that questions may take, as far as `LONGEST` allows."""


@dataclass(frozen=True, eq=False, init=False)
class StopOnSignal:
    """Save and stop when a signal asks the process to end, then exit with 128 + the signal.

    The step in progress is finished. An evaluation is left, and made again by the run that resumes,
    unless it is inside of a step: docs/guides/resume.md. Then the run is interrupted: if there is a
    `Checkpoint`, it saves one whole step, and the script goes on from there when it is started
    again. Exit codes are 143 for SIGTERM, 130 for SIGINT, and 138 for SIGUSR1 on Linux, also if
    the signal comes at the very end of the run. If the run fails, its error is raised instead.

    The first signal is announced by a line on stderr. A second signal goes to the signal handler
    that was installed before: by default it ends the process at once. A function that was installed
    before is called at the first signal too, except Python's own for Ctrl-C, which raises
    KeyboardInterrupt. At the end of the run the signal handlers from before are installed again.

    Several ranks ask one another now and then, and stop together, at the same step, if one got a
    signal. So it may take about a second until the step that is the last one; a signal that the
    launcher sends to one rank is enough.

    Args:
        signals: The signals; by default SIGTERM, SIGINT and SIGUSR1.
        deadline: Seconds after the first signal at which the process ends in any case, with the
            same exit code. Checkpoints that were complete stay so.
        wait: Seconds to wait before the exit, when all is saved and closed; `math.inf` waits for
            another signal. For schedulers that queue a job again only where they ended it, as
            Slurm may after a preemption. The deadline ends the wait too.
        exit: False to let `run` return, with a `state.stop_reason` such as "SIGTERM".
        exit_code: The exit code instead of 128 + the signal, for schedulers that queue a job again
            at a certain code.
        every: Of several ranks, the number of iterations from one question to the next; they also
            ask at the end of each epoch. By default as many as took rank 0 a second lately, at
            most twice as many as the time before; and up to ten seconds where asking takes more
            than a hundredth of the time, as among thousands of ranks. One process asks nobody,
            and stops after the iteration at hand.

    Raises:
        TypeError: One of `signals` is not a signal.
        ValueError: One of `signals` cannot be caught, or a number is out of its range; or `wait` or
            `exit_code` is given with `exit=False`.

    >>> StopOnSignal(signal.SIGKILL)
    Traceback (most recent call last):
    ...
    ValueError: StopOnSignal(SIGKILL): no process can catch this signal; choose SIGTERM, say
    """

    signals: tuple[signal.Signals, ...]
    deadline: float | None
    wait: float
    exit: bool
    exit_code: int | None
    every: int | None

    def __init__(
        self,
        *signals: signal.Signals,
        deadline: float | None = None,
        wait: float = 0.0,
        exit: bool = True,
        exit_code: int | None = None,
        every: int | None = None,
    ) -> None:
        for each in signals:
            if not isinstance(each, signal.Signals):
                raise TypeError(
                    f"StopOnSignal got {each!r} for a signal; it needs signals such as "
                    "signal.SIGTERM, and everything else by keyword: StopOnSignal(deadline=30)"
                )
            if each.name in ("SIGKILL", "SIGSTOP"):
                raise ValueError(
                    f"StopOnSignal({each.name}): no process can catch this signal; choose "
                    "SIGTERM, say"
                )
        if deadline is not None and not deadline > 0:
            raise ValueError(f"StopOnSignal(deadline={deadline!r}): needs seconds greater than 0")
        if every is not None and every < 1:
            raise ValueError(f"StopOnSignal(every={every!r}): needs a number of iterations, from 1")
        if isinstance(wait, bool) or not isinstance(wait, int | float) or not wait >= 0:
            raise ValueError(f"StopOnSignal(wait={wait!r}): needs seconds, from 0")
        if exit_code is not None and (type(exit_code) is not int or not 0 <= exit_code <= 255):
            raise ValueError(f"StopOnSignal(exit_code={exit_code!r}): needs a number from 0 to 255")
        if not exit and (wait or exit_code is not None):
            raise ValueError("StopOnSignal(exit=False) never exits; leave wait and exit_code out")
        vars(self).update(signals=signals or USUAL, deadline=deadline, every=every)
        vars(self).update(wait=wait, exit=exit, exit_code=exit_code)

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Install signal handlers when the run starts, and put the old ones back at its end."""
        # The last of LOADING: a state is loaded by then, and what is made at STARTED is covered.
        engine.on(Events.LOADING, stage=Stage.REPORT)(self.open)
        # REPORT of CLOSED comes after the last save is on the disk.
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.close)

    def open(self, state: State[Any, Any]) -> None:
        """Install the signal handlers."""
        if current_thread() is not main_thread():
            raise RuntimeError(
                "StopOnSignal: only the main thread of a process can handle signals, and this run "
                f"is in {current_thread().name!r}; leave it out here, and call "
                "state.interrupt(reason) to stop"
            )
        watch = state.recall(self, partial(SignalWatch, state, self.every), saved=False)
        watch.open(self.signals, self.deadline, self.exit_code)
        if self.wait and (moments := state.control.moments) is not None:
            pause = partial(self.pause, watch, moments[Events.CLOSED])
            moments.add_check(Events.CLOSED, pause, last=True)
        if watch.questions is not None:
            state.engine.signal(Events.ITERATION_COMPLETED).connect(watch.ask_in_time, sender=state)
            in_evaluation = state.engine.evaluation.signal(Events.ITERATION_COMPLETED)
            in_evaluation.connect(watch.ask_in_evaluation)
            for event in AT_THE_END:
                state.engine.signal(event).connect(watch.ask, sender=state)

    def ask(self, state: State[Any, Any]) -> None:
        """Stop if a rank got a signal: for a handler that waits, on all ranks at once."""
        state.recall(self, partial(SignalWatch, state, self.every), saved=False).ask(state)

    def close(self, state: State[Any, Any]) -> None:
        """Put the old signal handlers back, and exit if there was a signal.

        Raises:
            SystemExit: The process got a signal.
        """
        watch = state.recall(self, partial(SignalWatch, state, self.every), saved=False)
        watch.close()
        if watch.questions is not None:
            state.engine.signal(Events.ITERATION_COMPLETED).disconnect(watch.ask_in_time)
            in_evaluation = state.engine.evaluation.signal(Events.ITERATION_COMPLETED)
            in_evaluation.disconnect(watch.ask_in_evaluation)
            for event in AT_THE_END:
                state.engine.signal(event).disconnect(watch.ask)
        if (number := watch.received or watch.agreed) is None:
            return
        name = signal.Signals(number).name
        # No save follows the last commit point: drop the request, so that no warning comes.
        state.saves[:] = [save for save in state.saves if save != (name, None)]
        if self.exit and state.error is None and state.parent is None:
            code = 128 + number if self.exit_code is None else self.exit_code
            watch.exits = True
            logger.info("exits with %d, as %s asked it to", code, name)
            raise SystemExit(code)

    def pause(self, watch: SignalWatch, closed: Any, state: State[Any, Any]) -> None:
        """Wait before the exit, unless a handler failed, whose error would come too late."""
        if watch.exits and not closed.failed:
            end = watch.received_at + (self.deadline or math.inf)
            seconds = max(0.0, min(self.wait, end - time.monotonic(), 3e7))  # infinity is no sleep
            logger.info("waits %g seconds before the exit", seconds)
            time.sleep(seconds)


class SignalWatch:
    """The signal handler of one run, installed by `open`."""

    def __init__(self, state: State[Any, Any], every: int | None) -> None:
        self.state = state
        self.received: int | None = None
        """The first signal that this process got."""
        self.received_at: float = math.inf
        self.exits: bool = False
        self.agreed: int | None = None
        """The signal for which all ranks stop."""
        is_alone = ranks.world_size() == 1
        self.questions: Questions | None = None if is_alone else Questions(state, every)
        """When to ask the other ranks, if there are any."""
        self.leaving: Leaving | None = None if is_alone else Leaving(state)
        self._before: dict[int, Any] = {}
        self._process = os.getpid()
        self._watchdog: Watchdog | None = None

    def open(
        self, signals: tuple[signal.Signals, ...], deadline: float | None, exit_code: int | None
    ) -> None:
        """Replace the signal handlers of the process."""
        if deadline is not None:
            self._watchdog = Watchdog(signals, deadline, exit_code)
        self._before = {number: signal.getsignal(number) for number in signals}
        for number in signals:
            signal.signal(number, self)

    def close(self) -> None:
        """Install the signal handlers from before again."""
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before.clear()
        if self._watchdog is not None:
            self._watchdog.close()

    def ask_in_time(self, state: State[Any, Any]) -> None:
        """Ask the other ranks if a question is due in this iteration."""
        if self.questions is None or state.iteration >= self.questions.due:
            self.ask(state)

    def ask(self, state: State[Any, Any]) -> None:
        """Stop on all ranks if one of them got a signal."""
        if self.agreed is None and self.questions is not None:
            self.agreed = self.questions.ask(state, self.received)
            if self.agreed is not None:
                self._stop(self.agreed)

    def ask_in_evaluation(self, evaluation: State[Any, Any]) -> None:
        """Leave an evaluation, if all ranks do, because one of them got a signal."""
        if self.agreed is None and self.leaving is not None:
            self.agreed = self.leaving.look(evaluation, self.received)
            if self.agreed is not None:
                self._stop(self.agreed)

    def _stop(self, number: int) -> bool:
        """Interrupt the run and leave the evaluation inside; False if that is made to its end."""
        name = signal.Signals(number).name
        self.state.interrupt(name)
        return leave_evaluations(self.state, under_way.get(), name)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Ask for a stop, and no more: the signal may have interrupted any code."""
        forked = os.getpid() != self._process
        if forked or self.received is not None:
            self._give_way(number, forked)
            return
        self.received = number
        self.received_at = time.monotonic()
        inner, what = under_way.get(), "stops after this step"
        if self.leaving is not None:
            self.leaving.due = 0
        elif not self._stop(number) and inner and not inner.training:
            what = "stops after this evaluation, which is inside of a step"
        elif inner and not inner.training:
            what = "leaves this evaluation, which the resumed run makes again"
        name = signal.Signals(number).name
        say(f"{name}: {what}; a second signal ends it now")
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


class Questions:
    """Chooses the iterations in which all ranks ask: few, the same on each rank, and in time."""

    def __init__(self, state: State[Any, Any], every: int | None) -> None:
        self.every = every
        self.due: int = state.iteration + (every or 1)
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
            period = min(max(SHORTEST, self._took / FRACTION), LONGEST)
            in_time = int(done * period / max(passed, 1e-9))
            self._step = max(1, min(in_time, 2 * self._step))
        return self._step
