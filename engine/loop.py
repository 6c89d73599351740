"""The loop: one run of an engine."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic

from .data.feed import Feed, length_of_epoch
from .data.sources import length_of
from .events import Events
from .moments import Moments, explain
from .signals import label
from .state.state import Batch, Output, State

if TYPE_CHECKING:
    from .engine import Engine

logger = logging.getLogger("camshaft")


class Loop(Generic[Batch, Output]):
    """Takes one state through its run: `Engine.run` shows the order of events."""

    def __init__(
        self,
        engine: Engine[Batch, Output],
        state: State[Batch, Output],
        data: Iterable[Batch],
        epoch_length: int | None,
        *,
        most: int | None = None,
        moments: Moments | None = None,
    ) -> None:
        """Get ready to take `state` through the data, or through `most` batches of each pass.

        `moments` are given by a rehearsal.
        """
        self.process = engine.process
        self.state = state
        self.data = data
        self.epoch_length = epoch_length
        self.most = most
        self.feed: Feed[Batch] | None = None
        self.waiting = 0
        """Commit points in a row that were put off, because a window was open."""
        self.has_warned = False
        self.moments = Moments(engine) if moments is None else moments
        state.engine, state.moments = engine, self.moments

    def run(self) -> State[Batch, Output]:
        """Run from the first event to the last; return the state."""
        state, moments = self.state, self.moments
        late: list[BaseException] = []
        try:
            # Here already, for what has to be made before a saved state is put back into it.
            state.epoch_length = length_of_epoch(length_of(self.data), self.epoch_length, self.most)
            moments.announce(Events.LOADING, state)
            if self._is_over():
                self._say_why()
            else:
                self._run_epochs()
                if not state.is_interrupted:
                    moments.announce(Events.COMPLETED, state)
                self._commit()
        except BaseException as error:
            explain(error, "in the data", state)
            late += moments.conclude(Events.FAILED, state)
            late += self._close()
            for number in range(len(late)):
                error.add_note(f"then a handler raised {late[number]!r}")
            late.clear()  # they know of this error, and would keep it and all it saw alive
            raise
        if late := self._close():
            late.sort(key=_is_exit)  # a process that is about to exit must not hide what failed
            raise late.pop(0)
        return state

    def _run_epochs(self) -> None:
        feed = self.feed = Feed(self.data, self.state, self.epoch_length, self.most)
        try:
            self.moments.announce(Events.STARTED, self.state)
            feed.take_up(self.state)  # not before: the first part of the run has had its STARTED
            while not self._is_over():
                self._run_epoch(feed)
        except BaseException:
            with suppress(Exception):  # a device that has failed cannot tell its generators' state
                feed.leave(self.state)
            raise
        else:
            feed.leave(self.state)
        finally:
            feed.close()
        self.feed = None

    def _run_epoch(self, feed: Feed[Batch]) -> None:
        state = self.state
        state.epoch_length = feed.length()
        if not state.in_epoch:
            state.epoch, state.epoch_began, state.in_epoch = state.epoch + 1, state.iteration, True
            self.moments.announce(Events.EPOCH_STARTED, state)
        all_read = self._iterate(feed.epoch(state))
        if all_read:
            feed.check(state)
        self._close_windows()
        if self._epoch_is_over(feed, all_read):
            state.in_epoch = state.epoch_stopped = False
            self.moments.announce(Events.EPOCH_COMPLETED, state)
            self._commit()
            self._check_that_it_ends()

    def _check_that_it_ends(self) -> None:
        state = self.state
        if state.max_epochs is not None or state.max_iterations is not None:
            return
        if not state.step and not state.counts[Events.STEP_SKIPPED]:
            raise RuntimeError(
                f"max_steps={state.max_steps} is the only limit, and the first epoch made no "
                "optimizer step: call an Update in the process function, or "
                "state.fire(Events.STEP_COMPLETED) where it makes its own; or give max_epochs= too"
            )

    def _epoch_is_over(self, feed: Feed[Batch], all_read: bool) -> bool:
        state = self.state
        if state.is_interrupted:  # what is due now is due in the run that goes on from here
            return False
        if state.epoch_stopped or (all_read and state.iteration != state.max_iterations):
            return True
        return state.iteration_in_epoch == state.epoch_length and feed.is_used_up()

    def _iterate(self, batches: Iterator[Batch]) -> bool:
        """Process the batches; False if a handler ended the run or the epoch before the last."""
        process, state, metrics = self.process, self.state, self.state.metrics
        started = self.moments[Events.ITERATION_STARTED]
        completed = self.moments[Events.ITERATION_COMPLETED]
        if state.attention and self._commit():
            return False
        for batch in batches:
            state.iteration = metrics.iteration = iteration = state.iteration + 1
            state.batch, state.output = batch, None
            if iteration >= started.due:
                started.fire(state, iteration)
            try:
                state.output = process(state, batch)
            except BaseException as error:
                explain(error, f"in the process function {label(process)}", state)
                raise
            if iteration >= completed.due:
                completed.fire(state, iteration)
            if state.attention and self._commit():
                return False
        return True

    def _commit(self) -> bool:
        """Carry out what was asked for, if no window is open; True if the epoch is to be left."""
        state = self.state
        if state.windows:
            if state.limit_reached is None:
                self._put_off()
                return False
            self._close_windows()  # to wait would take steps beyond the limit
        self.waiting = 0
        if state.saves:
            if self.feed is not None:
                self.feed.leave(state)
                self.feed.warn_of_doubts()
            if not self.moments[Events.SAVING].signal.receivers:
                logger.warning("a save was asked for (%s), and nothing saves", state.saves[0][0])
            served = len(state.saves)
            self.moments.announce(Events.SAVING, state)
            del state.saves[:served]
        state.attention = False  # before the look, since other threads may ask for a save
        if state.saves:
            state.attention = True
        return state.stop_reason is not None or state.epoch_stopped

    def _close_windows(self) -> None:
        """Step with what the open windows hold: no batch follows."""
        for window in list(self.state.windows.values()):
            window.close(self.state)

    def _put_off(self) -> None:
        """Say so, once, if windows overlap: there is then no moment at which none is open."""
        windows = self.state.windows.values()
        self.waiting += 1
        if len(windows) < 2 or self.has_warned:
            return
        if self.waiting > sum(each.update.accumulate for each in windows):
            self.has_warned = True
            logger.warning(
                "a save or a stop waits for a moment without an open accumulation window, and %d "
                "of them take turns, so that it may wait until the end of the epoch: begin them in "
                "the same iteration, and let the larger accumulate= be a multiple of the smaller",
                len(windows),
            )

    def _is_over(self) -> bool:
        if (limit := self.state.limit_reached) is not None:
            self.state.stop(limit, resumable=True)
        return self.state.stop_reason is not None

    def _say_why(self) -> None:
        state = self.state
        logger.warning(
            "nothing to run: the run is over (%s) after %d epochs, %d iterations and %d steps; %s",
            *(state.stop_reason, state.epoch, state.iteration, state.step),
            "give a higher limit to carry on"
            if state.resumable
            else "to train, start one in another directory",
        )

    def _close(self) -> list[BaseException]:
        """Fire CLOSED and let go of everything that only a run under way needs."""
        state: State[Any, Any] = self.state
        failed = state.error is not None
        errors = self.moments.conclude(Events.CLOSED, state)
        if state.saves and not failed:
            logger.warning("a save was asked for (%s) too late to be made", state.saves[0][0])
        state.saves.clear()
        self.moments.close()
        state.engine = state.moments = state.optimizer = state.error = None
        state.resources.clear()
        state.windows.clear()
        try:
            return errors
        finally:
            del errors  # their tracebacks hold this frame, which would hold them


def _is_exit(error: BaseException) -> bool:
    return isinstance(error, SystemExit)
