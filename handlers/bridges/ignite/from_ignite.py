"""The adapter: handlers of ignite attached to an engine of Camshaft."""

from __future__ import annotations

import time
import weakref
from functools import partial
from typing import Any

from ignite.engine import Events as IgniteEvents
from ignite.handlers.time_profilers import BasicTimeProfiler

from ....engine import Engine, EventEnum, Events, Stage, State
from .front import IgniteEngine, StepEvents
from .memory import HandlerStates
from .run import complete_epoch, complete_run

BEGUN, BATCH_READ, ASKED = (
    IgniteEvents.ITERATION_STARTED,
    IgniteEvents.GET_BATCH_COMPLETED,
    IgniteEvents.GET_BATCH_STARTED,
)
HEARD: dict[EventEnum, tuple[Any, ...]] = {
    Events.ITERATION_STARTED: (BATCH_READ, BEGUN),
    Events.GRADIENTS_READY: (StepEvents.GRADIENTS_READY,),
    Events.STEP_COMPLETED: (StepEvents.STEP_COMPLETED,),
    Events.ITERATION_COMPLETED: (IgniteEvents.ITERATION_COMPLETED, ASKED),
}
"""The events of ignite that an event stands for; it is listened to if one of them has a handler."""


class FromIgnite:
    """Attach a handler, metric, scheduler, profiler or logger of pytorch-ignite.

    It sees ignite's `Engine`, whose state is a view of the run: see `as_ignite`. What it remembers
    is saved with the run. In each moment it is called where handlers act, after those that measure.

    Args:
        handler: An object with `attach(engine, ...)`; or anything that ignite calls with an engine,
            together with `on`.
        args: What follows the engine in `handler.attach`, such as a metric's name; with `on`, what
            follows the engine in the calls.
        on: The event of ignite by which to call the handler. Without it, `handler.attach` is used.
        kwargs: The same by keyword.

    Raises:
        TypeError: The handler has no `attach`, and `on` is missing.

    >>> from ignite.metrics import Average
    >>> engine = Engine(lambda state, batch: batch)
    >>> engine = engine.add(FromIgnite(Average(), "mean"))
    >>> engine.run([1.0, 2.0, 6.0], max_epochs=1).metrics["mean"]
    3.0
    """

    def __init__(self, handler: Any, *args: Any, on: Any = None, **kwargs: Any) -> None:
        if on is None and (isinstance(handler, type) or not hasattr(handler, "attach")):
            raise TypeError(
                f"FromIgnite({handler!r}): has no attach(); say when to call it, such as "
                "on=ignite.engine.Events.EPOCH_COMPLETED"
            )
        if on is not None and not callable(handler):
            raise TypeError(
                f"FromIgnite({handler!r}, on=...): cannot be called; without on= its attach() is "
                "used"
            )
        self.name: str = type(handler).__name__
        self.handler: Any = handler
        self._on, self._args, self._kwargs = on, args, kwargs

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Attach the handler to the ignite engine that stands for this one."""
        front = as_ignite(engine)
        if self._on is None:
            self.handler.attach(front, *self._args, **self._kwargs)
        else:
            front.add_event_handler(self._on, self.handler, *self._args, **self._kwargs)


def as_ignite(engine: Engine[Any, Any]) -> IgniteEngine:
    """The ignite `Engine` that stands for an engine: what ignite attaches to it, runs here.

    Lines of a script that attach handlers stay as they are:

    >>> from ignite.handlers import ProgressBar
    >>> engine = Engine(lambda state, batch: batch)
    >>> trainer = as_ignite(engine)
    >>> ProgressBar().attach(trainer)

    Each call gives the same one. For evaluations it is `as_ignite(engine.evaluation)`.
    """
    for handler in engine.find(IgniteHandlers):
        if handler.stands_for(engine):
            return handler.engine
    handlers = IgniteHandlers(engine)
    engine.add(handlers)
    return handlers.engine


class IgniteHandlers:
    """Calls the handlers of an `IgniteEngine` when a run announces its events."""

    def __init__(self, native: Engine[Any, Any]) -> None:
        self._native = weakref.ref(native)
        self.engine: IgniteEngine = IgniteEngine(native, self.follow)
        self._outer: list[State[Any, Any]] = []
        self._heard: dict[EventEnum, Any] = {}
        self._began = self._epoch_began = time.time()

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Listen to the events that come a few times in a run; `follow` adds the other ones."""
        engine.on(Events.LOADING, stage=Stage.MEASURE)(self.take)
        engine.on(Events.STARTED)(self.begin)
        engine.on(Events.EPOCH_STARTED)(self.begin_epoch)
        engine.on(Events.EPOCH_COMPLETED)(self.complete_epoch)
        engine.on(Events.COMPLETED)(self.complete)
        engine.on(Events.FAILED)(self.fail)
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.leave)

    def stands_for(self, engine: Engine[Any, Any]) -> bool:
        """True if `engine` is the one whose runs these handlers see."""
        return self._native() is engine

    def follow(self) -> None:
        """Listen to the events that handlers wait for, and to no others."""
        if (native := self._native()) is None:
            return
        for event, wanted in HEARD.items():
            is_wanted = any(map(self.engine.has_handlers, wanted))
            if is_wanted and event not in self._heard:
                self._heard[event] = announce = partial(self.announce, wanted)
                native.on(event)(announce)
            elif not is_wanted and event in self._heard:
                native.signals[event].disconnect(self._heard.pop(event))

    def announce(self, events: tuple[Any, ...], state: State[Any, Any]) -> None:
        """Call the handlers of some events, in which ignite has other counts than Camshaft."""
        engine = self.engine
        for event in events:
            if event is ASKED and state.is_last_batch:
                continue  # of the next batch, which the next epoch asks for
            engine.state.ahead = int(event is BATCH_READ)  # ignite counts when the iteration begins
            try:
                engine.fire(event)
            finally:
                engine.state.ahead = 0

    def take(self, state: State[Any, Any]) -> None:
        """Show this run to the handlers."""
        self._outer.append(self.engine.state.run)
        self.engine.state.run = state

    def begin(self, state: State[Any, Any]) -> None:
        """Call the handlers of STARTED, and put back what was saved, which they may have reset."""
        engine = self.engine
        if state.max_epochs is None and self._is_profiled():
            raise ValueError(
                "ignite's BasicTimeProfiler makes room for all epochs when a run starts, and this "
                "run has no max_epochs: pass engine.run(..., max_epochs=...), beside max_steps "
                "where that limits the run, or attach ignite's HandlersTimeProfiler"
            )
        engine.should_terminate = engine.should_terminate_single_epoch = False
        self._began = self._epoch_began = time.time()
        engine.fire(IgniteEvents.STARTED)
        self.follow()  # profilers put handlers in without asking
        state.recall(self, lambda: HandlerStates(engine)).begin()

    def _is_profiled(self) -> bool:
        engine: Any = self.engine
        handlers = engine._event_handlers.get(IgniteEvents.STARTED, [])
        owners = (getattr(handler, "__self__", None) for handler, _, _ in handlers)
        return any(isinstance(owner, BasicTimeProfiler) for owner in owners)

    def begin_epoch(self, state: State[Any, Any]) -> None:
        """Call the handlers of EPOCH_STARTED, and of GET_BATCH_STARTED for the first batch."""
        self._epoch_began = time.time()
        self.engine.fire(IgniteEvents.EPOCH_STARTED)
        self.engine.fire(ASKED)

    def complete_epoch(self, state: State[Any, Any]) -> None:
        """Call the handlers of EPOCH_COMPLETED; the time that the epoch took includes them."""
        complete_epoch(self.engine, self._epoch_began)

    def complete(self, state: State[Any, Any]) -> None:
        """Call the handlers of TERMINATE and COMPLETED; the time of the run includes them."""
        complete_run(self.engine, self._began)

    def fail(self, state: State[Any, Any]) -> None:
        """Call the handlers of EXCEPTION_RAISED; the error is raised whatever they do."""
        if (error := state.error) is None:
            return
        try:
            self.engine.fire(IgniteEvents.EXCEPTION_RAISED, error)
        except BaseException as raised:
            if raised is not error:
                raise

    def leave(self, state: State[Any, Any]) -> None:
        """Show the run around this one again; the last run stays to be looked at."""
        outer = self._outer.pop() if self._outer else state
        if outer.is_running:
            self.engine.state.run = outer
