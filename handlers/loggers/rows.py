"""How far a logger has come: what its next row holds, and where a resumed log goes on."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...engine.state.state import State
from ..common.media import Medium, on_host
from ..common.reporting import scalars

OURS = ("Events.", "ScheduleEvents.")
MOST = 1000
"""So many rows are remembered at the most while they cannot be written."""


class Row(NamedTuple):
    """What was new at one point of a run."""

    number: int
    """Counts a logger's rows from 1; the same after a resume."""
    iteration: int
    step: int
    epoch: int
    custom: dict[str, int]
    """How often each event of the user's own was fired, such as `"GanEvents.CRITIC_UPDATED"`."""
    metrics: dict[str, float]
    media: dict[str, Medium]
    """Texts, images and the like, in the host's memory."""

    @property
    def clocks(self) -> dict[str, int]:
        """All counts by their names."""
        own = {"iteration": self.iteration, "step": self.step, "epoch": self.epoch}
        return own | self.custom | own


@dataclass(slots=True)
class Bookmark:
    """What a logger remembers with the run.

    A run may be saved between two rows of one iteration, such as the last one of an epoch and
    the one that holds its validation. So a log cannot be cut by iteration alone: resumed, it
    drops the whole iteration of the latest row and gets the rows back that are remembered here.
    The same goes for rows that could not be written so far.
    """

    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The name under which others know the run."""
    write: int = 0
    """Where in the order of the metrics' writes the latest row was made."""
    number: int = 0
    """The rows so far."""
    latest: list[dict[str, Any]] = field(default_factory=list)
    """The rows of the latest iteration that has any, and those not written, as plain values."""

    def next_row(
        self, state: State[Any, Any], written: int, shown: tuple[type[Medium], ...] = ()
    ) -> Row | None:
        """What is new since the last row; None if nothing is.

        Args:
            state: The run.
            written: The number of the last row of which it is known that it was written.
            shown: The media that go into a row; others are left where they are.
        """
        new = state.metrics.since(self.write)
        self.write = state.metrics.writes
        metrics = scalars(new)
        media = {name: on_host(each) for name, each in new.items() if isinstance(each, shown)}
        if not metrics and not media:
            return None
        self.number += 1
        row = Row(
            *(self.number, state.iteration, state.step, state.epoch),
            *(custom_clocks(state), metrics, media),
        )
        pending = [each["iteration"] for each in self.latest if each["number"] > written]
        first = min([*pending, row.iteration])
        # A checkpoint may still be written in the background: what it holds is never changed.
        same = [each for each in self.latest if each["iteration"] >= first]
        self.latest = [*same[1 - MOST :], row._asdict()]
        return row

    def rows(self) -> list[Row]:
        """The rows that a log which is opened gets back."""
        return [Row(**row) for row in self.latest]

    def cut(self, state: State[Any, Any]) -> int:
        """The iteration from which on a log that is opened drops its rows."""
        if self.latest:
            return int(self.latest[0]["iteration"])
        return state.iteration + 1 if state.iteration else 0


def custom_clocks(state: State[Any, Any]) -> dict[str, int]:
    """The counts of the events of the user's own."""
    counts = state.counts.state_dict()
    return {name: count for name, count in counts.items() if not name.startswith(OURS)}
