"""One run of the bridge: what Camshaft's loop announces is announced to ignite's handlers."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from ignite.engine import Events as IgniteEvents

from ....engine import Events, Loop, Moments, Stage, State, Subscription, Trigger
from .feed import IgniteFeed

ITERATION_COMPLETED = IgniteEvents.ITERATION_COMPLETED


class Run:
    """Takes the bridge through one run, in several legs if it is interrupted.

    ignite's state counts; the state of Camshaft's loop follows it. ignite's engine only notes that
    `terminate`, `terminate_epoch` or `interrupt` was called; `carry_out` does it.
    """

    def __init__(self, engine: Any, state: State[Any, Any]) -> None:
        self.engine = engine
        self.state = state
        self.feed: IgniteFeed | None = None
        self.left_at: int = 0
        """The iteration of the loop before this leg; a checkpoint that is loaded changes it."""
        self.is_interrupted: bool = False
        self.has_ended_epoch: bool = False
        """True if an epoch ended early and its data must restart."""
        self.has_started: bool = False
        self.is_over: bool = False
        """True if the run was interrupted after its last epoch: only the end is left."""
        self.began: float = time.time()
        self.epoch_began: float = 0.0
        engine._init_timers(engine.state)

    def go(self) -> bool:
        """Run to the end, or until a handler interrupts the run; True if it did."""
        engine, state = self.engine, self.state
        self.is_interrupted = False
        if self.is_over:
            self._complete()
            return False
        self.left_at = state.iteration
        self.follow_limits()
        state.carry_on(None, None, None)
        if self.feed is None:
            data = engine.state.dataloader
            given = [None] * engine.state.epoch_length if data is None else data
            self.feed = IgniteFeed(self, given, state)
        elif state.control.position is not None and not engine.exact:
            state.control.position.rng_when_stored = None  # random generators keep their state here
        native = engine.native
        with self._listening():
            Loop(native, self.process, Moments(native.signals), state, self.feed).run()
        self.is_interrupted |= state.is_interrupted  # for example by a signal
        return self.is_interrupted

    def close(self) -> None:
        """Drop the iterator of the data, and what refers to this run."""
        self.engine._dataloader_iter = None
        self.is_interrupted = False
        if self.feed is not None:
            self.feed.close()
            self.feed = None  # which refers to this run: the engine is freed without the collector

    def process(self, state: State[Any, Any], batch: Any) -> Any:
        """Call the process function, and ignite's handlers after it."""
        engine, ignite, feed = self.engine, self.engine.state, self.feed
        assert feed is not None
        try:
            ignite.output = engine._process_function(engine, batch)
            feed.fire(ITERATION_COMPLETED)
            state.max_iterations = ignite.max_iters  # the loop reads it next
        except Exception as error:
            self.end_epoch_after(error)
            return ignite.output
        if self.has_orders:
            self.carry_out(feed.batches)
            if self.has_ended_epoch:
                feed.restart()
        return ignite.output

    @property
    def has_orders(self) -> bool:
        """True if something was asked for and not carried out yet."""
        engine = self.engine
        return bool(
            engine.should_terminate
            or engine.should_terminate_single_epoch
            or engine.should_interrupt
        )

    def carry_out(self, batches: int | None = None) -> bool:
        """Do what was asked for; True if the run is to be left here."""
        engine, state = self.engine, self.state
        if engine.should_terminate:
            state.stop("terminate")
            return True
        if engine.should_terminate_single_epoch:
            if batches is None:
                raise RuntimeError(
                    "terminate_epoch() was called in STARTED or EPOCH_STARTED, where no epoch can "
                    "end; call it in an event of an iteration, or terminate() to end the run"
                )
            engine._fire_event(IgniteEvents.TERMINATE_SINGLE_EPOCH, iter_counter=batches)
            self.has_ended_epoch = True
            state.stop_epoch()
            return False
        if engine.should_interrupt:
            engine._fire_event(IgniteEvents.INTERRUPT)
            engine.should_interrupt = False
            self.is_interrupted = True
            state.max_iterations = None  # the next leg completes, even at the limit
            state.stop("interrupt", resumable=True)
            return True
        return False

    def follow_limits(self) -> None:
        """Let the loop know how far ignite's state lets the run go, which handlers may change."""
        ignite, state = self.engine.state, self.state
        state.epoch, state.epoch_length = ignite.epoch, ignite.epoch_length
        state.max_epochs, state.max_iterations = ignite.max_epochs, ignite.max_iters

    def end_epoch_after(self, error: Exception) -> None:
        """End the epoch after an exception that handlers of EXCEPTION_RAISED have swallowed."""
        self.engine.logger.error("Current run is terminating due to exception: %s", error)
        self.engine._handle_exception(error)
        self.state.stop_epoch()

    @contextmanager
    def _listening(self) -> Generator[None]:
        """Within a `with` block, listen to the loop's events, in this run only."""
        signals = self.engine.native.signals
        heard = (
            (Events.LOADING, Stage.REPORT, self._loaded),
            (Events.STARTED, Stage.MEASURE, self._started),
            (Events.EPOCH_STARTED, Stage.MEASURE, self._epoch_started),
            (Events.EPOCH_COMPLETED, Stage.MEASURE, self._epoch_completed),
            (Events.COMPLETED, Stage.MEASURE, self._completed),
        )
        subscriptions = [
            (signals[event], Subscription(function, Trigger.of(event), stage, "ignite's handlers"))
            for event, stage, function in heard
        ]
        for signal, each in subscriptions:
            signal.connect(each, sender=self.state)
        try:
            yield
        finally:
            for signal, each in subscriptions:
                signal.disconnect(each)

    def _loaded(self, state: State[Any, Any]) -> None:
        """Take up what a checkpoint has put back, if there is one."""
        ignite = self.engine.state
        if state.iteration != self.left_at:
            ignite.iteration, ignite.epoch = state.iteration, state.epoch
            self.engine._init_iter = None
        states = self.engine._handler_states
        state.recall(states, lambda: states)

    def _started(self, state: State[Any, Any]) -> None:
        if self.has_started:
            return
        self.has_started = True
        self.engine._fire_event(IgniteEvents.STARTED)
        self.engine._handler_states.begin()
        self.carry_out()
        self.follow_limits()

    def _epoch_started(self, state: State[Any, Any]) -> None:
        engine, ignite = self.engine, self.engine.state
        ignite.epoch += 1
        self.epoch_began = time.time()
        engine._fire_event(IgniteEvents.EPOCH_STARTED)
        self.carry_out()
        self.follow_limits()
        if engine._dataloader_iter is None:  # the first epoch may go on inside another one
            done = ignite.iteration if engine._init_iter is None else engine._init_iter
            engine._init_iter = None
            state.control.epoch_began -= done % ignite.epoch_length if ignite.epoch_length else done

    def _epoch_completed(self, state: State[Any, Any]) -> None:
        engine, ignite = self.engine, self.engine.state
        if engine.should_terminate and state.stop_reason is not None:
            return  # ignite does not complete an epoch in which the run was terminated
        taken = complete_epoch(engine, self.epoch_began)
        self.carry_out()
        self.follow_limits()
        engine.logger.info("Epoch[%d] Complete. Time taken: %s", ignite.epoch, _clock(taken))
        state.metrics.update(ignite.metrics)
        if state.stop_reason is None and engine._is_done(ignite):
            state.stop("max_epochs")

    def _completed(self, state: State[Any, Any]) -> None:
        if self.is_interrupted:
            self.is_over = True
        else:
            self._complete()

    def _complete(self) -> None:
        engine = self.engine
        complete_run(engine, self.began)
        taken = engine.state.times[IgniteEvents.COMPLETED.name]
        engine.logger.info("Engine run finished. Time taken: %s", _clock(taken))


def complete_epoch(engine: Any, began: float) -> float:
    """Call the handlers of EPOCH_COMPLETED; return the seconds that the epoch took without them."""
    taken = _fire_timed(
        engine, IgniteEvents.EPOCH_COMPLETED, began, engine.should_terminate_single_epoch
    )
    engine.should_terminate_single_epoch = False
    return taken


def complete_run(engine: Any, began: float) -> None:
    """Call the handlers of TERMINATE and COMPLETED."""
    if engine.should_terminate:
        engine._fire_event(IgniteEvents.TERMINATE)
    _fire_timed(engine, IgniteEvents.COMPLETED, began, engine.should_terminate)


def _fire_timed(engine: Any, event: Any, began: float, asked: Any) -> float:
    """Fire an event unless it is to be skipped; note the time without, then with its handlers."""
    times = engine.state.times
    times[event.name] = taken = time.time() - began
    if asked != f"skip_{event.name.lower()}":
        engine._fire_event(event)
        times[event.name] = time.time() - began
    return taken


def _clock(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours:02d}:{minutes:02d}:{rest:06.3f}"
