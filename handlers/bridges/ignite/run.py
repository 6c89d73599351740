"""One run of the bridge: what Camshaft's loop announces is announced to ignite's handlers."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from ignite.engine import Events as IgniteEvents

from ....engine import Events, Loop, Moments, Stage, State, Subscription, Trigger
from .feed import IgniteFeed
from .memory import HandlerStates
from .orders import Orders, complete_epoch, complete_run

ITERATION_COMPLETED = IgniteEvents.ITERATION_COMPLETED


class Run:
    """Takes the bridge through one run, in several legs if it is interrupted.

    ignite's state counts; the state of Camshaft's loop follows it.
    """

    def __init__(self, engine: Any, state: State[Any, Any], handler_states: HandlerStates) -> None:
        self.engine = engine
        self.state = state
        self.handler_states = handler_states
        self.orders = Orders(engine)
        self.feed: IgniteFeed | None = None
        self.left_at = 0
        """The iteration of the loop before this leg; a checkpoint that is loaded changes it."""
        self.has_started = False
        self.is_over = False
        """True if the run was interrupted after its last epoch: only the end is left."""
        self.began = time.time()
        self.epoch_began = 0.0
        engine._init_timers(engine.state)

    def go(self) -> bool:
        """Run to the end, or until a handler interrupts the run; True if it did."""
        orders, engine, state = self.orders, self.engine, self.state
        orders.is_interrupted = False
        if self.is_over:
            self._complete()
            return False
        self.left_at = state.iteration
        self.orders.follow_limits(state)
        state.carry_on(None, None, None)
        if self.feed is None:
            data = engine.state.dataloader
            given = Nothing(engine.state.epoch_length) if data is None else data
            self.feed = IgniteFeed(orders, given, state)
        elif state.control.position is not None and not engine.exact:
            state.control.position.left = None  # in this process, random numbers go on
        native = engine.native
        with self._listening():
            Loop(native, self.process, Moments(native.signals), state, self.feed).run()
        orders.is_interrupted |= state.is_interrupted  # by a signal, say
        return orders.is_interrupted

    def close(self) -> None:
        """Drop the iterator of the data, and what refers to this run."""
        self.engine._dataloader_iter = None
        self.orders.is_interrupted = False
        if self.feed is not None:
            self.feed.close()

    def restart_data(self) -> None:
        """Begin the data of ignite's state, which were exchanged."""
        if self.feed is not None:
            self.feed.restart()

    def note_place(self) -> None:
        """Note where the run is in its data, and the random generators."""
        if self.feed is not None:
            self.feed.leave()

    def process(self, state: State[Any, Any], batch: Any) -> Any:
        """Call the process function, and ignite's handlers after it."""
        engine, ignite, feed = self.engine, self.engine.state, self.feed
        assert feed is not None
        try:
            ignite.output = engine._process_function(engine, batch)
            feed.fire(ITERATION_COMPLETED)
        except Exception as error:
            self.orders.end_epoch_after(error, state)
            return ignite.output
        if (
            engine.should_terminate
            or engine.should_terminate_single_epoch
            or engine.should_interrupt
        ):
            self.orders.carry_out(state, feed.batches)
            if self.orders.has_ended_epoch:
                feed.restart()
        return ignite.output

    @contextmanager
    def _listening(self) -> Generator[None]:
        """Within a `with` block, hear what the loop announces, in this run alone."""
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
        self.handler_states.recall(state)

    def _started(self, state: State[Any, Any]) -> None:
        if self.has_started:
            return
        self.has_started = True
        self.engine._fire_event(IgniteEvents.STARTED)
        self.handler_states.recall(state).begin()
        self.orders.carry_out(state)
        self.orders.follow_limits(state)

    def _epoch_started(self, state: State[Any, Any]) -> None:
        engine, ignite = self.engine, self.engine.state
        ignite.epoch += 1
        self.epoch_began = time.time()
        engine._fire_event(IgniteEvents.EPOCH_STARTED)
        self.orders.carry_out(state)
        self.orders.follow_limits(state)
        if engine._dataloader_iter is None:  # the first epoch may go on inside another one
            done = ignite.iteration if engine._init_iter is None else engine._init_iter
            engine._init_iter = None
            state.control.epoch_began -= done % ignite.epoch_length if ignite.epoch_length else done

    def _epoch_completed(self, state: State[Any, Any]) -> None:
        engine, ignite = self.engine, self.engine.state
        if engine.should_terminate and state.stop_reason is not None:
            return  # ignite does not complete an epoch in which the run was terminated
        taken = complete_epoch(engine, self.epoch_began)
        self.orders.carry_out(state)
        self.orders.follow_limits(state)
        engine.logger.info("Epoch[%d] Complete. Time taken: %s", ignite.epoch, _clock(taken))
        state.metrics.update(ignite.metrics)
        if state.stop_reason is None and engine._is_done(ignite):
            state.stop("max_epochs")

    def _completed(self, state: State[Any, Any]) -> None:
        if self.orders.is_interrupted:
            self.is_over = True
        else:
            self._complete()

    def _complete(self) -> None:
        engine = self.engine
        complete_run(engine, self.began)
        taken = engine.state.times[IgniteEvents.COMPLETED.name]
        engine.logger.info("Engine run finished. Time taken: %s", _clock(taken))


class Nothing:
    """The data of a run without data: as many batches as an epoch has, all None."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[None]:
        return iter([None] * self.length)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours:02d}:{minutes:02d}:{rest:06.3f}"
