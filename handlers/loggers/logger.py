"""The one way from a run's metrics to a log, and a logger for trackers of one's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, ClassVar, Protocol

from ...engine.engine import Engine
from ...engine.events import EventEnum, Events, Stage, Trigger
from ...engine.state.state import State
from ..common.media import KINDS, Medium
from .background import Background
from .direct import Direct
from .rows import Bookmark
from .writer import Start, Writer

WHEN = Events.ITERATION_COMPLETED(every=50) | Events.EPOCH_COMPLETED | Events.COMPLETED
"""When a row is written, unless a logger is told otherwise."""
ALL: tuple[type[Medium], ...] = tuple(KINDS.values())


class LogsRows(Protocol):
    """A handler whose rows `attach` takes care of."""

    @property
    def when(self) -> EventEnum | Trigger:
        """When to write a row, if there is anything new."""
        ...

    @property
    def shown(self) -> tuple[type[Medium], ...]:
        """What it shows besides numbers."""
        ...

    @property
    def background(self) -> bool:
        """True if a thread writes, so that the run never waits."""
        ...

    def open(self, start: Start, /) -> Writer:
        """Make what takes the rows."""
        ...


@dataclass(frozen=True, eq=False)
class Logger:
    """Write rows to a tracker of one's own.

    Args:
        open: Called with a `Start`; makes a `Writer`: an object with `write(row)`, `sync()` and
            `close()`. A class will do. All four are called by one thread, not the training's.
        name: Tells several apart; by default what `open` is called.
        when: When to write a row, if there is anything new.
        background: False to be called by the training's thread, which then waits: for files.

    >>> class Board:
    ...     def __init__(self, start):
    ...         self.lines = []
    ...     def write(self, row):
    ...         self.lines.append(f"{row.iteration}: {row.metrics['loss']}")
    ...     def sync(self):
    ...         pass
    ...     def close(self):
    ...         print(*self.lines, sep=", ")
    >>> def train_step(state, batch):
    ...     state.metrics["loss"] = 1 / batch
    >>> engine = Engine(train_step, Logger(Board, when=Events.ITERATION_COMPLETED))
    >>> state = engine.run([1, 2, 4], max_epochs=1)
    1: 1.0, 2: 0.5, 3: 0.25
    """

    open: Callable[[Start], Writer]
    name: str | None = None
    when: EventEnum | Trigger = WHEN
    background: bool = True
    shown: tuple[type[Medium], ...] = field(default=ALL, init=False, repr=False)
    rank: ClassVar[int] = 0

    def __post_init__(self) -> None:
        """Find a name."""
        if not callable(self.open):
            raise TypeError(
                f"Logger({self.open!r}): needs what makes a writer: a class, or a function of a "
                "Start that returns an object with write(row), sync() and close()"
            )
        if self.name is None:
            object.__setattr__(self, "name", getattr(self.open, "__name__", None))

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Write rows by the trigger."""
        attach(self, engine)


def attach(handler: LogsRows, engine: Engine[Any, Any]) -> None:
    """Write the rows of a handler by its trigger, as its own methods, so that they bear its name.

    They are in the log, or in the checkpoint, before a checkpoint counts on them.

    Raises:
        ValueError: Another handler writes to the same file.
    """
    path = getattr(handler, "path", None)
    for name, other in engine.handlers.items():
        if path and id(other) != id(handler) and getattr(other, "path", None) == path:
            raise ValueError(f"{name} writes to {path} already; give this logger a file of its own")
    for when, stage, function in (
        (Events.STARTED, Stage.REPORT, open_log),
        (handler.when, Stage.REPORT, write),
        (Events.SAVING, Stage.MEASURE, sync),
        (Events.CLOSED, Stage.ACT, end),
        (Events.CLOSED, Stage.REPORT, close),
    ):
        engine.on(when, stage=stage)(MethodType(function, handler))


class Log:
    """What a run under way holds of a logger: nothing before it is opened."""

    way: Direct | Background | None = None


def open_log(handler: LogsRows, state: State[Any, Any]) -> None:
    """Open the log where the run is."""
    bookmark = state.recall(handler, Bookmark)
    name = type(handler).__name__ if state.engine is None else state.engine.name_of(handler)
    way = (Background if handler.background else Direct)(name, handler.open)
    way.begin(_start(bookmark, state), bookmark.rows())
    state.recall(handler, Log, saved=False).way = way


def write(handler: LogsRows, state: State[Any, Any]) -> None:
    """Write what is new."""
    if way := state.recall(handler, Log, saved=False).way:
        bookmark = state.recall(handler, Bookmark)
        if row := bookmark.next_row(state, way.written, handler.shown):
            way.write(row)


def sync(handler: LogsRows, state: State[Any, Any]) -> None:
    """Have the rows on the disk; what could not be written so far is tried again."""
    if way := state.recall(handler, Log, saved=False).way:
        _again(handler, state, way)
        way.sync()


def end(handler: LogsRows, state: State[Any, Any]) -> None:
    """Let all loggers come to their ends at the same time."""
    if way := state.recall(handler, Log, saved=False).way:
        _again(handler, state, way)
        way.end()


def close(handler: LogsRows, state: State[Any, Any]) -> None:
    """Close the log."""
    log = state.recall(handler, Log, saved=False)
    if way := log.way:
        log.way = None
        way.close()


def _again(handler: LogsRows, state: State[Any, Any], way: Direct | Background) -> None:
    bookmark = state.recall(handler, Bookmark)
    way.again(_start(bookmark, state), bookmark.rows())


def _start(bookmark: Bookmark, state: State[Any, Any]) -> Start:
    return Start(bookmark.run, bookmark.cut(state))
