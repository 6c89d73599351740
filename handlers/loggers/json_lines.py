"""Rows of metrics as lines of JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ...engine.engine import Engine
from ...engine.events import EventEnum, Trigger
from ..common.media import Medium
from .files import LineFile, move_aside, refuse_directory, replace_lines
from .logger import WHEN, attach
from .rows import Row
from .writer import Start


@dataclass(frozen=True, eq=False)
class JSONLines:
    """Write metrics to a file, one JSON object a line: the clocks, and what is new since the last.

    Each row is on its way to the disk as soon as it is written, so a kill loses at most the row
    in progress. A run that is resumed drops the rows past the point it is resumed from; one that
    starts anew moves an earlier run's file to `<path>.1`, or the next number that is free. What
    is no number is written as `"NaN"`, `"Infinity"` or `"-Infinity"`, which every JSON reader
    accepts and `float()` turns back. Metrics that are more than one number are left out, and so
    is one that is named like a clock.

    Args:
        path: The file; its folder is made if there is none.
        when: When to write a row, if there is anything new.

    >>> from tempfile import mkdtemp
    >>> from camshaft import Events
    >>> path = Path(mkdtemp(), "rows.jsonl")
    >>> def train_step(state, batch):
    ...     state.metrics["loss"] = 1 / batch
    >>> engine = Engine(train_step, JSONLines(path, when=Events.ITERATION_COMPLETED))
    >>> state = engine.run([1, 2], max_epochs=1)
    >>> print(path.read_text(), end="")
    {"iteration": 1, "step": 0, "epoch": 1, "loss": 1.0}
    {"iteration": 2, "step": 0, "epoch": 1, "loss": 0.5}
    """

    path: str | os.PathLike[str]
    when: EventEnum | Trigger = WHEN
    background: bool = field(default=False, init=False, repr=False)
    shown: tuple[type[Medium], ...] = field(default=(), init=False, repr=False)
    rank: ClassVar[int] = 0

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Write rows by the trigger; have them on the disk before a checkpoint counts on them.

        Raises:
            IsADirectoryError: The path is a directory.
        """
        refuse_directory(self.path, "JSONLines", "rows.jsonl")
        attach(self, engine)

    def open(self, start: Start) -> JSONFile:
        """Open the file where the run is; the rows of another run are moved aside.

        Raises:
            ValueError: A run is resumed, and the file holds other things than rows.
        """
        return JSONFile(Path(self.path), start)


class JSONFile:
    """One file of rows."""

    def __init__(self, path: Path, start: Start) -> None:
        """Open a file that goes on where the run is."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            if start.first:
                replace_lines(path, _lines_before(start.first, path))
            else:
                move_aside(path, "JSONLines")
        self._file = LineFile(path)

    def write(self, row: Row) -> None:
        """Write a row as one line."""
        # Bare NaN and Infinity, which Python would write, are no JSON.
        metrics = {
            name: value if math.isfinite(value) else json.dumps(value)
            for name, value in row.metrics.items()
        }
        clocks = row.clocks
        self._file.write(json.dumps(clocks | metrics | clocks, allow_nan=False) + "\n")

    def sync(self) -> None:
        """Have all rows on the disk."""
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _lines_before(first: int, path: Path) -> Iterator[str]:
    torn = 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if (iteration := _iteration(line)) is None:
                torn = torn or number
            elif torn:
                raise ValueError(
                    f"line {torn} of {path} is no row of a JSONLines log, which would be cut off "
                    "here to resume the run; move the file away, or give the log another path"
                )
            elif iteration < first:
                yield line.rstrip("\n") + "\n"


def _iteration(line: str) -> int | None:
    """The iteration of a row; None if the line is torn or no row at all."""
    try:
        return int(json.loads(line)["iteration"])
    except (ValueError, TypeError, KeyError):
        return None
