"""Rows of metrics as a table of comma-separated values."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
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
class CSV:
    """Write metrics to a file that spreadsheets and pandas read: a column each, a line a row.

    The first columns are the clocks. A metric that comes up later gets a column at the end, for
    which the file is written anew, all at once; what has no value in a row is empty there. As for
    the rest it is like `JSONLines`: a row is on its way to the disk as soon as it is written, a run
    that is resumed drops the rows past the point it is resumed from, one that starts anew moves an
    earlier run's file to `<path>.1`.

    Args:
        path: The file; its folder is made if there is none.
        when: When to write a row, if there is anything new.

    >>> from tempfile import mkdtemp
    >>> from camshaft import Events
    >>> path = Path(mkdtemp(), "rows.csv")
    >>> def train_step(state, batch):
    ...     state.metrics["loss"] = 1 / batch
    >>> engine = Engine(train_step, CSV(path, when=Events.ITERATION_COMPLETED))
    >>> state = engine.run([1, 2], max_epochs=1)
    >>> print(path.read_text(), end="")
    iteration,step,epoch,loss
    1,0,1,1.0
    2,0,1,0.5
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
        refuse_directory(self.path, "CSV", "rows.csv")
        attach(self, engine)

    def open(self, start: Start) -> Table:
        """Open the file where the run is; the rows of another run are moved aside.

        Raises:
            ValueError: A run is resumed, and the file holds other things than rows.
        """
        return Table(Path(self.path), start)


class Table:
    """One file of rows, with the names of its columns in the first line."""

    def __init__(self, path: Path, start: Start) -> None:
        """Open a file that goes on where the run is."""
        self._path = path
        self._columns: list[str] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            if start.first:
                self._columns, lines = _read(path, start.first)
                replace_lines(path, lines)
            else:
                move_aside(path, "CSV")
        self._file = LineFile(path)

    def write(self, row: Row) -> None:
        """Write a row as one line, after a new head if it has new columns."""
        values: Mapping[str, float] = row.clocks | row.metrics | row.clocks
        if new := [name for name in values if name not in self._columns]:
            self._widen([*self._columns, *new])
        self._file.write(_line([values.get(name, "") for name in self._columns]))

    def sync(self) -> None:
        """Have all rows on the disk."""
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _widen(self, columns: list[str]) -> None:
        """Replace the head; shorter lines are filled up."""
        rows = _rows(self._path)[1:]
        filled = (_line([*row, *[""] * (len(columns) - len(row))]) for row in rows)
        replace_lines(self._path, [_line(columns), *filled])
        old, self._file, self._columns = self._file, LineFile(self._path), columns
        old.close()


def _line(values: list[Any]) -> str:
    """One line, quoted where that is needed."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def _rows(path: Path) -> list[list[str]]:
    """All lines that are whole; a kill may have torn the last one."""
    text = path.read_bytes().decode(errors="replace")
    whole = text[: text.rfind("\n") + 1]
    return list(csv.reader(io.StringIO(whole, newline="")))


def _read(path: Path, first: int) -> tuple[list[str], list[str]]:
    """The columns, and all lines before iteration `first`."""
    if not (rows := _rows(path)):
        return [], []
    columns = rows[0]
    for number, row in enumerate(rows, 1):
        begins = row[:1] == ["iteration"] if number == 1 else "".join(row[:1]).isdigit()
        if not begins or len(row) != len(columns):
            raise ValueError(
                f"line {number} of {path} is no row of a CSV log, which would be cut off here to "
                "resume the run; move the file away, or give the log another path"
            )
    kept = [row for row in rows[1:] if int(row[0]) < first]
    return columns, list(map(_line, [columns, *kept]))
