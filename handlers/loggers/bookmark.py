"""How far a logger has come: what its next row holds, and where a resumed log goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...engine.state import State
from ..scalars import scalars


class Row(NamedTuple):
    """The metrics that were new at one point of a run."""

    iteration: int
    step: int
    epoch: int
    metrics: dict[str, float]


@dataclass(slots=True)
class Bookmark:
    """What a logger remembers with the run.

    A run may be saved between two rows of one iteration, such as the last one of an epoch and
    the one that holds its validation. So a log cannot be cut by iteration alone: resumed, it
    drops the whole iteration of the latest row and gets the rows back that are remembered here.
    """

    write: int = 0
    """Where in the order of the metrics' writes the latest row was made."""
    latest: list[dict[str, Any]] = field(default_factory=list)
    """The rows of the latest iteration that has any, as plain values."""

    def next_row(self, state: State[Any, Any]) -> Row | None:
        """What is new since the last row; None if no metric is."""
        new = state.metrics.since(self.write)
        self.write = state.metrics.writes
        if not (metrics := scalars(new)):
            return None
        row = Row(state.iteration, state.step, state.epoch, metrics)
        # A checkpoint may still be written in the background: what it holds is never changed.
        same = [each for each in self.latest if each["iteration"] == row.iteration]
        self.latest = [*same, row._asdict()]
        return row

    def rows(self) -> list[Row]:
        """The rows of the latest iteration that has any."""
        return [Row(**row) for row in self.latest]

    def cut(self, state: State[Any, Any]) -> int:
        """The iteration from which on a log that is resumed drops its rows."""
        return self.latest[0]["iteration"] if self.latest else state.iteration + 1
