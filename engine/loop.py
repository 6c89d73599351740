"""The loop: one run of an engine."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import modules, ranks
from .changes import doubts_of_workers, generators_of_run, script_functions
from .checks import attach_checks, check_same_on_ranks
from .data import Feed
from .events import Events
from .explain import advise_on_workers, explain, warn
from .moments import Moments
from .signals import Process, label
from .state import (
    OF_ITERATION,
    OF_START,
    Batch,
    End,
    Output,
    State,
    StepUnderWay,
    has_state,
    under_way,
)

if TYPE_CHECKING:
    from .engine import Engine

logger: logging.Logger = logging.getLogger("camshaft")

OF_REQUESTS = (
    "Inside an epoch, all ranks have to stop or save in the same iteration: "
    'if ranks.any_rank(flag): state.stop("why"). To stop at the end of an epoch, one rank is enough'
)
SHARED = (
    "another thread of this process runs an engine too. torch, NumPy and random have one generator "
    "for all threads: both runs draw from it in turns, an evaluation in one puts back what the "
    "other has drawn, and neither run can be repeated or resumed exactly. Give each run a process "
    "of its own: with Optuna, start the script several times instead of n_jobs="
)

_at_once: list[tuple[int, bool]] = []
"""The runs under way in this process: of each its thread, and whether it trains."""


@dataclass(eq=False)
class Loop(Generic[Batch, Output]):
    """Takes one state through its run: `Engine.run` shows the order of events."""

    engine: Engine[Any, Any]
    process: Process[Batch, Output]
    moments: Moments
    state: State[Batch, Output]
    feed: Feed[Batch]
    """Reads the data, and tells the length and the end of an epoch."""
    postponed: int = 0
    """Commit points in a row at which a window was open."""
    has_warned: bool = False

    def __post_init__(self) -> None:
        control = self.state.control
        control.engine, control.moments = self.engine, self.moments
        control.began, control.resumed_from = time.monotonic(), None

    def run(self) -> State[Batch, Output]:
        """Run from the first event to the last; return the state."""
        run = (threading.get_ident(), self.state.training)
        if any(thread != run[0] and (trains or run[1]) for thread, trains in _at_once):
            warn(SHARED)
        _at_once.append(run)
        token = under_way.set(self.state)
        try:
            return _with_room(self._run)
        except BaseException as error:
            advise_on_workers(error)  # a worker's death may be signalled after the first error
            raise
        finally:
            under_way.reset(token)
            _at_once.remove(run)

    def _run(self) -> State[Batch, Output]:
        state, moments, feed = self.state, self.moments, self.feed
        late: list[BaseException] = []
        try:
            if feed.in_step.is_on:
                if state.control.outer is None:
                    ranks.Meetings.outside().leave("begins a run")
                self._check_alike()
                state.control.meetings = ranks.Meetings(partial(feed.in_step.passed, state))
            state.control.data = feed.data
            # Before LOADING: schedules are made with this length before their state is loaded.
            state.epoch_length = feed.agree_on_length()
            modules.begin_training(state, is_loaded=False)
            moments.announce(Events.LOADING, state)
            feed.in_step.agree_on_requests(state)
            modules.begin_training(state, is_loaded=True)
            if not state.is_new:  # of the pass that was loaded, which may have another length
                state.epoch_length = feed.agree_on_length()
            if is_over := state.end is not None and not state.control.left_at:
                self._warn_that_it_is_over()
            else:
                state.control.completed = None  # the limits were raised
            if is_over and self._has_completed():
                self._stop_at_limit()
                self._find_generators()
                feed.restore(is_over=True)
                feed.close()
            else:
                self._run_epochs()
                if state.end is not End.PAUSED:
                    moments.announce(Events.COMPLETED, state)
                    if state.training and not state.control.has_left:
                        # for a script that starts again
                        state.control.completed = feed.source.capture()
                feed.in_step.agree_on_requests(state)
                self._commit(is_agreed=True)
        except BaseException as error:
            explain(error, "in the data", state)
            if state.control.outer is None:
                ranks.note_failure(error)  # before FAILED: the other ranks may be waiting for this
            late += moments.conclude(Events.FAILED, state)
            late += self._close()
            while late:  # popped: their tracebacks refer to this error, whose frames would stay
                error.add_note(f"then a handler raised {late.pop(0)!r}")
            raise
        if late := self._close():
            late.sort(key=lambda each: isinstance(each, SystemExit))  # it must not hide a failure
            for each in late[1:]:
                late[0].add_note(f"then a handler raised {each!r}")
            ranks.note_failure(late[0])
            del late[1:]
            raise late.pop(0)
        return state

    def _run_epochs(self) -> None:
        state, feed = self.state, self.feed
        try:
            self.moments.announce(Events.STARTED, state)
            feed.in_step.agree_on_requests(state)
            if not state.control.has_left:
                state.control.left_at.pop(OF_START, None)
            # Those with a `state_dict` are memories of their own. After STARTED, at which some of
            # them reset themselves, they load their saved states.
            for each in [*self.engine.handlers.values()] if state.training else []:
                if has_state(each):
                    state.recall(each, lambda: each)  # noqa: B023  # it is called at once
            attach_checks(state, self.moments, self.process)
            self._find_generators()
            feed.restore()  # after STARTED, whose handlers may draw random numbers
            if state.control.in_epoch:
                if state.limit_reached == "max_steps":  # the feed knows of max_iterations alone
                    state.stop("max_steps", resumable=True)
                # The epoch of a run that has ended gets no batch, and may need its completion.
                state.control.has_requests |= state.stop_reason is not None
                self._run_epoch()
            self._stop_at_limit()
            while state.stop_reason is None:
                self._run_epoch()
                self._stop_at_limit()
        except BaseException:
            with suppress(Exception):  # the generator state of a failed device cannot be read
                self._store()
            raise
        else:
            # An evaluation can be resumed only if it was saved.
            if state.training or self.engine.has_handlers(Events.SAVING):
                self._store()
        finally:
            feed.close()

    def _find_generators(self) -> None:
        """Find what the run draws from, once; for an evaluation, `Engine.evaluate` has done it."""
        if not self.state.training:
            return
        functions = script_functions(self.process, self.moments.signals)
        found = generators_of_run(self.engine.objects, functions, self.feed.data)
        self.feed.named.update(found)

    def _store(self) -> None:
        """Store the generator states, also of generators that objects have made meanwhile."""
        self.feed.named |= modules.generators_in(self.engine.objects)
        self.feed.store()

    def _check_alike(self) -> None:
        """Compare the ranks first, since messages of ranks with different settings do not match."""
        feed = self.feed
        given: dict[str, Any] = {
            "epoch_length": feed.limit if feed.repeats else None,
            "uneven": feed.in_step.uneven,
            "the data": str(feed.source.order) or None,
            "samples": feed.undealt(),
            "shared": feed.shared(),
        }
        try:
            run = self.engine, self.moments.signals, self.process, self.state
            repeats, differ = check_same_on_ranks(*run, **given)
            if repeats or differ:
                from .data.dataloader import warn_of_other_samples_on_ranks, warn_of_undealt

                warn = warn_of_undealt if repeats else warn_of_other_samples_on_ranks
                warn(feed.source.data)
        except ValueError as error:
            explain(error, "before the first batch", self.state)
            raise

    def _run_epoch(self) -> None:
        state, control, feed = self.state, self.state.control, self.feed
        state.epoch_length = feed.agree_on_length()
        if not (control.in_epoch or self._begin_epoch()):
            self._commit()
            return
        is_whole = feed.complete_epoch(self._iterate(feed.epoch()))
        if feed.is_used_up and not state.iteration_in_epoch:  # the epoch has not begun
            state.epoch -= 1
            state.metrics.clock = (state.step, state.epoch)
            control.in_epoch = control.epoch_stopped = False
            self._end_with_data()
            return
        state.step_under_way.close(state)
        if state.end is End.PAUSED or not (is_whole or control.epoch_stopped):
            return  # the resumed run completes this epoch
        stopped, control.epoch_stopped = control.epoch_stopped, False
        control.in_epoch = False
        if feed.is_used_up:
            self._end_with_data()
        self.moments.announce(Events.EPOCH_COMPLETED, state)
        if control.has_left:  # the resumed run completes this epoch
            control.in_epoch, control.epoch_stopped = True, stopped
        elif feed.in_step.is_on:
            feed.in_step.agree_on_requests(state)
            sums = partial(modules.sums_of_weights, self.engine)
            feed.in_step.compare_weights(state.epoch, sums)
        self._commit()

    def _begin_epoch(self) -> bool:
        """Announce an epoch; False if that was left, so that the resumed run begins the epoch."""
        state, control = self.state, self.state.control
        state.epoch += 1
        state.metrics.clock = (state.step, state.epoch)
        control.epoch_began, control.in_epoch = state.iteration, True
        self.moments.announce(Events.EPOCH_STARTED, state)
        if control.has_left:
            state.epoch, control.in_epoch = state.epoch - 1, False
        return control.in_epoch

    def _end_with_data(self) -> None:
        """Stop for good, because the iterator is used up, unless the run is over already."""
        state = self.state
        if state.end is not None:
            return
        limits = {
            name: getattr(state, name) for name in ("max_epochs", "max_iterations", "max_steps")
        }
        logger.warning(
            "the data ended after %d epochs, %d iterations and %d steps, before %s: it is an "
            "iterator, which cannot begin again. For more, pass what can (a DataLoader, a list, an "
            "object with __iter__)",
            *(state.epoch, state.iteration, state.step),
            " and ".join(f"{name}={most}" for name, most in limits.items() if most is not None),
        )
        state.stop("data_ended")

    def _iterate(self, batches: Iterator[Batch]) -> bool:
        """Process the batches; False if a handler ended the run or the epoch early."""
        process, state, metrics = self.process, self.state, self.state.metrics
        if (around := self.engine.around) is not None and self.moments.rehearsal is None:
            process = partial(around, process)
        control = state.control
        started = self.moments[Events.ITERATION_STARTED]
        completed = self.moments[Events.ITERATION_COMPLETED]
        if OF_ITERATION in control.left_at:
            completed.fire(state, state.iteration)
        state.share = 1.0  # not before: handlers of the iteration that was left read its share
        if control.has_requests and self._commit():
            return False
        for batch in batches:
            state.iteration = metrics.iteration = iteration = state.iteration + 1
            state.batch, state.output = batch, None
            if iteration >= started.due:
                started.fire(state, iteration)
            try:
                state.output = process(state, batch)
            except BaseException as error:
                explain(error, f"in the process function {label(self.process)}", state)
                raise
            if iteration >= completed.due:
                completed.fire(state, iteration)
                if (most := state.max_steps) is not None and state.step >= most:
                    state.stop("max_steps", resumable=True)  # a handler has lowered the limit
            if control.has_requests and self._commit():
                return False
            if (most := state.max_iterations) is not None and iteration >= most:
                return True  # read each time, since a handler may change it
        return True

    def _commit(self, *, is_agreed: bool = False) -> bool:
        """Save if asked and if no window is open; return True if the run or epoch has to end."""
        state, control = self.state, self.state.control
        if state.step_under_way.windows:
            if state.limit_reached is None:
                self._postpone()
                return False
            state.step_under_way.close(state)  # waiting would take steps beyond the limit
        self.postponed = 0
        meetings = control.meetings if control.in_epoch and not is_agreed else None
        if meetings is not None:
            self._meet(meetings)  # before a save, which waits for all ranks
        if (at_commit := control.at_commit) is not None:
            control.at_commit = None
            at_commit(state, self._store)  # before a save: it may replace the run by a newer one
        if control.saves:
            if self.feed.is_open:
                self._store()
                self.feed.warn_of_doubts(doubts_of_workers)
            if not self.moments[Events.SAVING].signal.receivers:
                logger.warning("a save was asked for (%s), and nothing saves", control.saves[0][0])
            served, self.feed.in_step.saves = len(control.saves), True
            self.moments.announce(Events.SAVING, state)
            self.feed.in_step.saves = False
            del control.saves[:served]
            if meetings is not None:
                self._meet(meetings)  # a handler of the save may have asked for more
        control.has_requests = False  # before `saves` is read: other threads may ask for a save
        if control.saves:
            control.has_requests = True
        return state.stop_reason is not None or control.epoch_stopped

    def _meet(self, meetings: ranks.Meetings) -> None:
        """Let all ranks end the run or the epoch, or save, in the same iteration."""
        state, asked = self.state, list[str]()
        if state.stop_reason is not None and not state.is_last_batch:
            asked.append(f"stop ({state.stop_reason})")
        elif state.control.epoch_stopped and not state.is_last_batch:
            asked.append("end the epoch")
        # Saves with `by` are asked for on all ranks alike, since all ranks have these handlers.
        asked += [f"save ({reason})" for reason, by in state.control.saves if by is None]
        if asked:
            does = f"was asked to {' and '.join(asked)} in iteration {state.iteration}"
            meetings.meet(does, OF_REQUESTS)

    def _postpone(self) -> None:
        """Warn once if overlapping accumulation windows keep postponing the save."""
        control = self.state.control
        if not (control.saves or self.state.stop_reason or control.epoch_stopped):
            return
        self.postponed += 1
        if not self.has_warned and self.state.step_under_way.overlaps(self.postponed):
            self.has_warned = True
            logger.warning(
                "a save or a stop waits until no accumulation window is open, but the windows of "
                "several updates take turns, so that it may wait until the end of the epoch: begin "
                "them in the same iteration, and let the larger accumulate= be a multiple of the "
                "smaller"
            )

    def _stop_at_limit(self) -> None:
        """End the run if it has reached a limit and nothing else has ended it."""
        if self.state.stop_reason is None and (limit := self.state.limit_reached) is not None:
            self.state.stop(limit, resumable=True)

    def _warn_that_it_is_over(self) -> None:
        state = self.state
        if state.is_interrupted:  # before it began
            return
        logger.warning(
            "nothing to run: the run is over (%s) after %d epochs, %d iterations and %d steps; %s",
            *(state.stop_reason or state.limit_reached, state.epoch, state.iteration, state.step),
            "give a higher limit to carry on"
            if state.end is End.LIMIT
            else "to train, start one in another directory",
        )

    def _has_completed(self) -> bool:
        """True if a run that is over was COMPLETED; one that was killed may still need it."""
        state, control = self.state, self.state.control
        # A limit may be lower than it was. The epoch under way counts: it began beyond the limit.
        counts = ((state.iteration, state.max_iterations), (state.epoch, state.max_epochs))
        is_beyond = any(limit is not None and count > limit for count, limit in counts)
        return control.position is None or control.completed is not None or is_beyond

    def _close(self) -> list[BaseException]:
        """Fire CLOSED, and drop everything that only a running run needs."""
        state, control = self.state, self.state.control
        failed = control.error is not None
        errors = self.moments.conclude(Events.CLOSED, state)
        if control.meetings is not None:
            control.meetings.end()
        if control.saves and not failed:
            logger.warning("a save was asked for (%s) too late to be made", control.saves[0][0])
        control.saves.clear()
        self.moments.close()
        control.engine = control.moments = control.error = control.outer = control.data = None
        control.meetings = None
        state.memory.unsaved.clear()
        state.memory.names.clear()
        state.step_under_way = StepUnderWay(skipped_at=state.step_under_way.skipped_at)
        try:
            return errors
        finally:
            del errors  # breaks a cycle: their tracebacks hold this frame


Result = TypeVar("Result")


def _with_room(function: Callable[[], Result]) -> Result:
    """Call a function in a new chunk of Python's stack, so that its caller's depth does not matter.

    CPython keeps function frames in chunks of 16 KiB. A call that does not fit allocates another
    chunk, and its return frees the chunk. If a chunk ends inside a training step, each step
    allocates and frees many times, which may take as long as the step itself.
    """
    return function()


# A frame of 2**13 words takes a chunk of 128 KiB, and leaves half of it to the calls inside.
_with_room.__code__ = _with_room.__code__.replace(co_stacksize=2**13)
