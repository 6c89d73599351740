"""What a logger is made of: something that takes rows, and a word on where the run is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .rows import Row


@dataclass(frozen=True)
class Start:
    """Where in its run a log is opened."""

    run: str
    """Names the run: the same text whenever it is resumed."""
    first: int
    """The rows from this iteration on are written (again), so what there is of them should go; 0
    in a run that begins."""


class Writer(Protocol):
    """Takes the rows of a run, one after the other."""

    def write(self, row: Row, /) -> None:
        """Write one row, or what can be shown of it."""

    def sync(self) -> None:
        """Have all rows where they survive a crash, if that is not so anyway."""

    def close(self) -> None:
        """End it: the run is over, or goes on another time."""
