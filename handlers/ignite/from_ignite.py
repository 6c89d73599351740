"""The adapter: handlers of ignite attached to an engine of Camshaft."""

from __future__ import annotations

from typing import Any

from ...engine import Engine
from .engine import IgniteEngine
from .ignite_handlers import IgniteHandlers


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
