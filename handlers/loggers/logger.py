"""The one way from a run's metrics to a log, and a logger for a tracker of one's own."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger
from ...engine.checks import warn
from ...engine.state import Entry
from ..common import AT_EACH_ROW, KINDS, Embedding, Image, Medium
from ..validate import ValidationEvents
from .rows import Bookmark, Row, Start, Writer

if TYPE_CHECKING:
    from .delivery import Background, Direct

ALL: tuple[type[Medium], ...] = tuple(KINDS.values())


@dataclass(eq=False)
class OpenLog:
    """A run's open log."""

    delivery: Direct | Background | None = None
    """None before the log is opened and after it is closed."""
    is_first: bool = False
    """True for the first logger of an engine, which warns for all."""
    shown: tuple[type[Medium], ...] = ()
    """The media types that at least one logger of the engine shows."""
    warned: set[str] = field(default_factory=set[str])
    """The metrics that no logger shows and that were already warned about."""


class LogsRows(ABC):
    """The base of all loggers: a subclass opens a writer, which then gets the rows of the run.

    Rows are written by the trigger, and saved with the run: all are in the log, or in the
    checkpoint, before a checkpoint counts on them.
    """

    only_on_rank: ClassVar[int] = 0
    when: EventEnum | Trigger
    """When to write a row, if there is anything new."""
    shown: ClassVar[tuple[type[Medium], ...]] = ()
    """The media types that it shows besides numbers."""
    background: bool = False
    """True if a thread writes, so that the run never waits."""

    @abstractmethod
    def writer(self, start: Start) -> Writer:
        """Open the log where the run is."""

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Write rows by the trigger, and at the end of the run what is left."""
        engine.on(Events.STARTED, stage=Stage.REPORT)(self.open_log)
        engine.on(Trigger.of(self.when) | Events.COMPLETED, stage=Stage.REPORT)(self.write)
        engine.on(ValidationEvents.VALIDATED, stage=Stage.REPORT)(self.keep)
        engine.on(Events.SAVING, stage=Stage.MEASURE)(self.sync)
        engine.on(Events.CLOSED, stage=Stage.ACT)(self.end)
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.close)

    def open_log(self, state: State[Any, Any]) -> None:
        """Open the log where the run is."""
        from .delivery import Background, Direct  # only the rank that writes needs it

        bookmark = state.recall(self, Bookmark)
        bookmark.open(state)
        if not state.control.writes:
            return
        folder = ""
        with suppress(FileNotFoundError):  # the folder is removed: an absolute path needs none
            folder = os.getcwd()
        name, place = state.engine.name_of(self), partial(bookmark.place, state, folder)
        delivery = (Background if self.background else Direct)(name, self.writer, place)
        delivery.open()
        log = state.recall(self, OpenLog, saved=False)
        loggers = state.engine.find(LogsRows)  # type: ignore[type-abstract]
        log.delivery, log.is_first = delivery, loggers[0] is self
        log.shown = tuple({kind for each in loggers for kind in each.shown})

    def write(self, state: State[Any, Any], entries: dict[str, Entry] | None = None) -> None:
        """Write what is new."""
        log, bookmark = state.recall(self, OpenLog, saved=False), state.recall(self, Bookmark)
        if not state.control.writes:  # another replica writes them
            bookmark.next_rows(state, bookmark.number, self.shown, entries)
        elif delivery := log.delivery or self._delivery(state):
            others = dict[str, Any]()
            rows = bookmark.next_rows(state, delivery.written, self.shown, entries, others)
            if others and log.is_first:
                warn_of_unshown(others, log.shown, log.warned)
            if log.is_first:
                warn_of_clocks(rows, log.warned)
            delivery.write(rows)

    def keep(self, state: State[Any, Any]) -> None:
        """Write what an earlier validation measured, if it is in no row and was just replaced."""
        if entries := state.recall(self, Bookmark).lost(state):
            self.write(state, entries)

    def sync(self, state: State[Any, Any]) -> None:
        """Make all rows survive a crash, including rows that could not be written before."""
        if delivery := self._delivery(state):
            delivery.sync()

    def end(self, state: State[Any, Any]) -> None:
        """Let all loggers come to their ends at the same time."""
        if delivery := state.recall(self, OpenLog, saved=False).delivery:
            delivery.end()

    def close(self, state: State[Any, Any]) -> None:
        """Close the log."""
        log = state.recall(self, OpenLog, saved=False)
        if delivery := log.delivery:
            log.delivery = None
            delivery.close()

    def _delivery(self, state: State[Any, Any]) -> Direct | Background | None:
        """What delivers the rows; it is opened here where this process takes the log over."""
        log = state.recall(self, OpenLog, saved=False)
        if log.delivery is None and state.control.writes:
            self.open_log(state)
        return log.delivery


def warn_of_unshown(
    others: Mapping[str, Any], shown: tuple[type[Medium], ...], warned: set[str]
) -> None:
    """Warn once of each of these metrics, which are no numbers, that is of no kind in `shown`."""
    for name, value in others.items():
        if name in warned or isinstance(value, shown):
            continue
        warned.add(name)
        kind = type(value).__name__
        if isinstance(value, ALL):
            files = "ImageFiles(directory)" if isinstance(value, Image) else "JSONLines(path)"
            if isinstance(value, Embedding):
                files = "TensorBoard(directory)"
            advice = (
                f"engine.add({files}) writes it, for camshaft report; docs/guides/logging.md "
                "names the trackers that show it"
            )
        else:
            kind += f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
            advice = (
                "make it one number, or a Text, Image, Histogram, Curve or ConfusionMatrix, which "
                "you import from camshaft.handlers.loggers; what is no metric belongs in "
                "state.collected"
            )
        warn(f"no logger shows state.metrics[{name!r}], a value of type {kind}: {advice}")


def warn_of_clocks(rows: Iterable[Row], warned: set[str]) -> None:
    """Warn once of each metric that has the name of a clock, and another value."""
    for row in rows:
        for name, count in row.clocks.items():
            value = row.metrics.get(name, count)
            if value != count and name not in warned:
                warned.add(name)
                warn(
                    f"state.metrics[{name!r}] is {value:g}, but logs have the run's own count, "
                    f"{count}, under that name: give the metric another one, such as 'my_{name}'"
                )


@dataclass(frozen=True, eq=False)
class Logger(LogsRows):
    """Write rows to a tracker of one's own.

    Args:
        open: Called with a `Start`; makes a `Writer`: an object with `write(row)`, `sync()` and
            `close()`. A class will do. One thread calls all four, not the thread of the training.
        name: Tells several loggers apart; by default the name of `open`.
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
    _: KW_ONLY
    name: str | None = None
    when: EventEnum | Trigger = AT_EACH_ROW
    background: bool = True
    shown = ALL

    def __post_init__(self) -> None:
        if not callable(self.open):
            raise TypeError(
                f"Logger({self.open!r}): needs what makes a writer: a class, or a function of a "
                "Start that returns an object with write(row), sync() and close()"
            )
        if self.name is None:
            object.__setattr__(self, "name", getattr(self.open, "__name__", None))

    def writer(self, start: Start) -> Writer:
        """Open the tracker."""
        return self.open(start)
