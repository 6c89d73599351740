"""The adapter: handlers of ignite attached to an engine of Camshaft."""

from __future__ import annotations

import weakref
from typing import Any

import ignite.engine

from ...engine import Engine, EventEnum, Events, Stage, State
from ...engine.ignite import IgniteMemory
from .engine import IgniteEngine, StepEvents

IgniteEvents = ignite.engine.Events
HEARD: dict[EventEnum, tuple[str, tuple[Any, ...]]] = {
    Events.EPOCH_STARTED: (
        "begin_epoch",
        (IgniteEvents.EPOCH_STARTED, IgniteEvents.GET_BATCH_STARTED),
    ),
    Events.ITERATION_STARTED: (
        "begin_iteration",
        (IgniteEvents.GET_BATCH_COMPLETED, IgniteEvents.ITERATION_STARTED),
    ),
    Events.GRADIENTS_READY: ("see_gradients", (StepEvents.GRADIENTS_READY,)),
    Events.STEP_COMPLETED: ("complete_step", (StepEvents.STEP_COMPLETED,)),
    Events.ITERATION_COMPLETED: (
        "complete_iteration",
        (IgniteEvents.ITERATION_COMPLETED, IgniteEvents.GET_BATCH_STARTED),
    ),
    Events.FAILED: ("fail", (IgniteEvents.EXCEPTION_RAISED,)),
}
"""By event: the method that is called, if one of these events of ignite has a handler."""


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
        self.name = type(handler).__name__
        self.handler: Any = handler
        self._on, self._args, self._kwargs = on, args, kwargs

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Attach the handler to the ignite engine that stands for this one."""
        front = as_ignite(engine)
        if self._on is None:
            self.handler.attach(front, *self._args, **self._kwargs)
        else:
            front.add_event_handler(self._on, self.handler, *self._args, **self._kwargs)


class IgniteHandlers:
    """Calls the handlers of an `IgniteEngine` when a run announces its events."""

    def __init__(self, native: Engine[Any, Any]) -> None:
        self._native = weakref.ref(native)
        self.engine = IgniteEngine(native, self.follow)
        self._outer: list[State[Any, Any]] = []
        self._heard: dict[EventEnum, Any] = {}

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Listen to what happens a few times in a run; to the rest, once a handler wants it."""
        engine.on(Events.LOADING, stage=Stage.MEASURE)(self.take)
        engine.on(Events.STARTED)(self.begin)
        engine.on(Events.EPOCH_COMPLETED)(self.complete_epoch)
        engine.on(Events.COMPLETED)(self.complete)
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.leave)

    def stands_for(self, engine: Engine[Any, Any]) -> bool:
        """True for the engine behind."""
        return self._native() is engine

    def follow(self) -> None:
        """Listen to the events that handlers wait for, and to no others."""
        if (native := self._native()) is None:
            return
        for event, (name, wanted) in HEARD.items():
            is_wanted = any(map(self.engine.has_handlers, wanted))
            if is_wanted and event not in self._heard:
                self._heard[event] = method = getattr(self, name)
                native.on(event)(method)
            elif not is_wanted and event in self._heard:
                native.signals[event].disconnect(self._heard.pop(event))

    def take(self, state: State[Any, Any]) -> None:
        """Show this run to the handlers."""
        self._outer.append(self.engine.state.run)
        self.engine.state.run = state

    def begin(self, state: State[Any, Any]) -> None:
        """Call the handlers of STARTED, and put back what was saved, which they may have reset."""
        self.engine.begin()
        state.recall(self, lambda: IgniteMemory(weakref.ref(self.engine))).begin()

    def begin_epoch(self, state: State[Any, Any]) -> None:
        """Call the handlers of EPOCH_STARTED."""
        self.engine.begin_epoch()

    def begin_iteration(self, state: State[Any, Any]) -> None:
        """Call the handlers of GET_BATCH_COMPLETED and ITERATION_STARTED."""
        self.engine.begin_iteration()

    def see_gradients(self, state: State[Any, Any]) -> None:
        """Call the handlers of GRADIENTS_READY."""
        self.engine.fire(StepEvents.GRADIENTS_READY)

    def complete_step(self, state: State[Any, Any]) -> None:
        """Call the handlers of STEP_COMPLETED."""
        self.engine.fire(StepEvents.STEP_COMPLETED)

    def complete_iteration(self, state: State[Any, Any]) -> None:
        """Call the handlers of ITERATION_COMPLETED and GET_BATCH_STARTED."""
        self.engine.complete_iteration()

    def complete_epoch(self, state: State[Any, Any]) -> None:
        """Call the handlers of EPOCH_COMPLETED."""
        self.engine.complete_epoch()

    def complete(self, state: State[Any, Any]) -> None:
        """Call the handlers of TERMINATE and COMPLETED."""
        self.engine.complete()

    def fail(self, state: State[Any, Any]) -> None:
        """Call the handlers of EXCEPTION_RAISED."""
        if state.error is not None:
            self.engine.fail(state.error)

    def leave(self, state: State[Any, Any]) -> None:
        """Show the run around this one again; the last run stays to be looked at."""
        outer = self._outer.pop() if self._outer else state
        if outer.is_running:
            self.engine.state.run = outer


def as_ignite(engine: Engine[Any, Any]) -> IgniteEngine:
    """The ignite `Engine` that stands for an engine: what ignite attaches to it, runs here.

    Lines of a script that attach handlers stay as they are:

    >>> from ignite.handlers import ProgressBar
    >>> engine = Engine(lambda state, batch: batch)
    >>> trainer = as_ignite(engine)
    >>> ProgressBar().attach(trainer)

    Each call gives the same one. For evaluations it is `as_ignite(engine.evaluation)`.
    """
    for handler in engine.handlers.values():
        if isinstance(handler, IgniteHandlers) and handler.stands_for(engine):
            return handler.engine
    handlers = IgniteHandlers(engine)
    engine.add(handlers)
    return handlers.engine
