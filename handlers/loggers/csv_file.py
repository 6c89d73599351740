"""Rows of metrics as a table of comma-separated values."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, ClassVar

from ..files import lines_from_end, printable, whole_lines
from .files import LogsToFile, RowFile
from .rows import Row

COUNT = re.compile("[0-9]{1,19}")
FORMULA = ("=", "+", "-", "@")
"""First characters of a formula in spreadsheets; an apostrophe before them makes it text."""


class Table(RowFile):
    """One file of rows, with the names of its columns in the first line."""

    kind = "CSV"
    _columns: tuple[str, ...] = ()

    def line_of(self, row: Row) -> str:
        """A row as one line; if it has new columns, the file gets a new head before."""
        values = _values(row)
        if new := [name for name in values if name not in self._columns]:
            self._widen(*self._columns, *new)
        return _line([values.get(name, "") for name in self._columns])

    def own_line_of(self, row: Row) -> str | None:
        """The line by which this file has a row; None if it lacks a column."""
        return self.line_of(row) if _values(row).keys() <= {*self._columns} else None

    def before(self, first: int) -> tuple[int, int]:
        """The bytes of the head and of the rows before `first`, and the iteration of the last."""
        if (head := next(self._rows(), None)) is None:
            return 0, 0
        self._columns = tuple(head)
        if head[:1] != ["iteration"]:
            raise self.no_row(0)
        with self.reading() as file:
            for place, line in lines_from_end(file):
                if place == 0:
                    return len(line), 0
                if line.endswith(b"\n"):  # else a kill cut the line
                    [row] = _parsed([line])
                    is_row = COUNT.fullmatch("".join(row[:1])) and len(row) == len(self._columns)
                    if not is_row:
                        raise self.no_row(place)
                    if int(row[0]) < first:
                        return place + len(line), int(row[0])
        return 0, 0

    def _widen(self, *columns: str) -> None:
        """Replace the head, and fill up shorter lines."""
        rows = islice(self._rows(), 1, None)
        filled = (_line([*row, *[""] * (len(columns) - len(row))]) for row in rows)
        self.put_in_place(chain([_line(columns)], filled))
        self._columns = columns

    def _rows(self) -> Iterator[list[str]]:
        """All complete lines; a kill may have cut the last one. Each row is one line."""
        with self.reading() as file:
            yield from _parsed(whole_lines(file))


@dataclass(frozen=True, eq=False)
class CSV(LogsToFile):
    """Write metrics to a file that spreadsheets and pandas read: a column each, a line a row.

    The first columns are the clocks. A metric that comes up later gets a column at the end, for
    which the file is written anew, all at once; a column without a value in a row is empty there.
    Otherwise it is like `JSONLines`: a row goes to the file as soon as it is written, a resumed
    run drops the rows past the point it is resumed from, and a new run moves an earlier run's file
    to `<path>.1`.

    Args:
        path: The file; its folder is made if there is none.
        when: When to write a row, if there is anything new.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from camshaft import Engine, Events
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

    usual_name = "rows.csv"
    opens: ClassVar[type[RowFile]] = Table


def _values(row: Row) -> dict[str, float]:
    """By column: the values of a row."""
    named: Mapping[str, float] = row.clocks | row.metrics | row.clocks
    return {_column(name): value for name, value in named.items()}


def _parsed(lines: Iterable[bytes]) -> Iterator[list[str]]:
    try:
        for line in lines:
            yield from csv.reader([line.decode(errors="replace")])
    except csv.Error as error:
        raise ValueError(f"has a line that is none of a table ({error})") from error


def _line(values: Iterable[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def _column(name: str) -> str:
    """A metric's name as the head of a column: text that nothing obeys or computes.

    Terminals and spreadsheets show these files, and a metric may come from a checkpoint.
    """
    return printable(f"'{name}" if name[:1] in FORMULA else name)
