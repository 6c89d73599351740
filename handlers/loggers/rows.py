"""Rows of metrics: what a writer takes, and how far a logger has come with them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ...engine import State
from ...engine.state import Entry
from ..common import Medium, on_host, scalars
from ..schedules import rates

OURS = ("Events.", "ScheduleEvents.", "ValidationEvents.")
Measured = tuple[list[tuple[int, int, int]], dict[str, float], dict[str, Medium]]
"""What was measured in one iteration: the clocks of each, the numbers, and the media."""
MOST = 1000
"""A logger remembers at most this many rows while it cannot write them."""


class Row(NamedTuple):
    """The measurements of one iteration, or of a part of it."""

    number: int
    """Counts a logger's rows from 1; the same after a resume."""
    iteration: int
    step: int
    epoch: int
    custom: dict[str, int]
    """How often each event of the user's own was fired, such as `"GanEvents.CRITIC_UPDATED"`; empty
    in a row of an earlier iteration than the one in which it is written."""
    metrics: dict[str, float]
    media: dict[str, Medium]
    """Texts, images and the like, in the host's memory."""

    @property
    def clocks(self) -> dict[str, int]:
        """All counts by their names."""
        own = {"iteration": self.iteration, "step": self.step, "epoch": self.epoch}
        return own | self.custom | own


@dataclass(frozen=True)
class Start:
    """Where in its run a log is opened."""

    run: str
    """Names the run: the same text whenever it is resumed."""
    first: int
    """The writer gets all rows from this iteration on, so it drops those that it has."""
    is_resumed: bool = False
    """True if the run goes on, so that the log has rows of it."""
    row: Row | None = None
    """The first of these rows that the run had made before, if any: the log may have it."""
    last: int = 0
    """The iteration of the last row before `first` that the log should have; 0 if there is none."""
    folder: str = ""
    """Where the run started, for relative paths: the script may have moved when it is reopened."""


class Writer(Protocol):
    """Takes the rows of a run, one after the other."""

    def write(self, row: Row, /) -> None:
        """Write one row, or as much of it as can be shown."""

    def sync(self) -> None:
        """Make all rows survive a crash."""

    def close(self) -> None:
        """Close the log: the run has ended, or will be resumed later."""


@dataclass(frozen=True, eq=False)
class WriterOf:
    """A writer made of two functions, for what needs no sync: it has a row soon after `write`."""

    write: Callable[[Row], None]
    close: Callable[[], None]

    def sync(self) -> None:
        """Do nothing."""


@dataclass(slots=True)
class Bookmark:
    """What a logger remembers with the run.

    A run may be saved between two rows of one iteration, such as the last row of an epoch and
    the row with its validation. So a log cannot be cut by iteration alone: a resumed log drops the
    whole iteration of the latest row, and gets the rows back that the bookmark remembers. The
    bookmark also remembers rows that could not be written.
    """

    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The name of the run for trackers."""
    write: int = -1
    """Where in the order of the metrics' writes the latest row was made; -1 before the first log
    is opened."""
    number: int = 0
    """The number of rows so far."""
    latest: list[dict[str, Any]] = field(default_factory=list)
    """The rows of the latest iteration with rows, and the unwritten rows, as plain values; each
    with the iteration of the row before its own."""

    def open(self, state: State[Any, Any]) -> None:
        """Begin in a new run, or where the run is: what was measured before is not this log's."""
        if self.write < 0:
            self.write = state.metrics.writes if state.iteration else 0

    def lost(self, state: State[Any, Any]) -> dict[str, Entry]:
        """What the validation of this moment has replaced before it was in a row.

        And what else was measured up to then: rows are in the order of their iterations.
        """
        metrics = state.metrics
        before = {name: entry for name, entry in metrics.before.items() if entry[1] > self.write}
        lost = [entry[2][0] for name, entry in before.items() if entry[1] != metrics.written(name)]
        until = max(lost, default=-1)
        return {name: entry for name, entry in before.items() if entry[2][0] <= until}

    def next_rows(
        self,
        state: State[Any, Any],
        written: int,
        shown: tuple[type[Medium], ...] = (),
        entries: dict[str, Entry] | None = None,
        others: dict[str, Any] | None = None,
    ) -> list[Row]:
        """What is new since the last row: one row for each iteration in which it was measured.

        Args:
            state: The run.
            written: The number of the last row that is known to be written.
            shown: The kinds of media to put into a row.
            entries: What is in the rows, as `lost` says; by default all that is new.
            others: Gets what is new, and neither a number nor shown.
        """
        if entries is None:
            found, self.write = state.metrics.entries(self.write), state.metrics.writes
        else:
            found = entries
            self.write = max((entry[1] for entry in entries.values()), default=self.write)
        begins = not self.latest or self.latest[-1]["iteration"] != state.iteration
        constant = rates(state) if found and begins else {}
        numbers = scalars(constant | {name: entry[0] for name, entry in found.items()})
        measured = dict[int, Measured]()
        for name, (value, _, clocks) in found.items():
            if name in numbers or isinstance(value, shown):
                of_all, metrics, media = measured.setdefault(clocks[0], ([], {}, {}))
                of_all.append(clocks)
                if name in numbers:
                    metrics[name] = numbers[name]
                else:
                    media[name] = on_host(value)
            elif others is not None:
                others[name] = value
        rows = list[Row]()
        for iteration in sorted(measured):
            of_all, metrics, media = measured[iteration]
            (_, step, epoch), custom = max(of_all), dict[str, int]()
            if iteration == state.iteration:
                metrics |= {name: numbers[name] for name in constant if name in numbers}
                step, epoch, counts = state.step, state.epoch, state.counts.state_dict()
                custom = {n: each for n, each in counts.items() if not n.startswith(OURS)}
            self.number += 1
            row = Row(self.number, iteration, step, epoch, custom, metrics, media)
            self._remember(row, written)
            rows.append(row)
        return rows

    def _remember(self, row: Row, written: int) -> None:
        """Keep a row, and the earlier rows that a resumed log needs again."""
        pending = [each["iteration"] for each in self.latest if each["number"] > written]
        first = min([*pending, row.iteration])
        # A new list: a checkpoint that is written in the background may still hold the old one.
        same = [each for each in self.latest if each["iteration"] >= first]
        was = self.latest[-1] if self.latest else {"iteration": 0}
        key = "before" if was["iteration"] == row.iteration else "iteration"
        before = was.get(key, 0)  # older checkpoints lack it
        self.latest = [*same[1 - MOST :], row._asdict() | {"before": before}]

    def place(self, state: State[Any, Any], folder: str = "") -> tuple[Start, list[Row]]:
        """Where in its run to open a log, and the rows to write to it again.

        The log drops its rows from the iteration of the first of them on.
        """
        if self.latest:
            first = int(self.latest[0]["iteration"])
        else:
            clocks = [entry[2][0] for entry in state.metrics.entries(self.write).values()]
            first = min([*clocks, state.iteration + 1])
        last = self.latest[0].get("before", 0) if self.latest else 0
        rows = [Row(**{key: row[key] for key in Row._fields}) for row in self.latest]
        first, row = first if state.iteration else 0, rows[0] if rows else None
        return Start(self.run, first, state.iteration > 0, row, last, folder), rows
