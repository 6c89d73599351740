"""Rows of metrics as `JSONLines` wrote them, without lines that are torn or not a row."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from .....engine.state import as_float
from ....files import budget, record_of, regular, whole_lines
from ....journal import JOURNAL
from .curves import HistogramRow, Series
from .exhibits import Exhibit, TooLargeError, exhibit_of
from .journal_lines import Thinned

CLOCKS = frozenset({"iteration", "step", "epoch", "time"})
HUGE = 1e307
"""Edges of histograms are below it, so that the width of their ranges is a number."""
OWN_CLOCK = re.compile(r"\w+\.[A-Z][A-Z0-9_]*")  # such as GanEvents.CRITIC_UPDATED


class MetricFile:
    """A file of rows that grows: each look reads what is new; one that was cut is read anew."""

    def __init__(self, path: Path, names: set[str], notes: set[str]) -> None:
        """Read nothing yet; `names` and `notes` are of all files, and this one adds to them."""
        self.path = path
        self._names, self._notes = names, notes
        self._begin(-1)

    def _begin(self, inode: int) -> None:
        self.problem: str = ""
        """Why it cannot be read, or not to its end."""
        self.series: dict[str, Series] = {}
        self.histograms: dict[str, Thinned[HistogramRow]] = {}
        self.exhibits: dict[str, Thinned[Exhibit]] = {}
        self._clocks = Thinned[tuple[int, int, int]](budget.MOST_KEPT)
        self._inode, self._rows, self._offset, self._latest = inode, 0, 0, b""

    @property
    def clocks(self) -> dict[int, tuple[int, int]]:
        """Step and epoch by the iterations of the rows."""
        return {iteration: (step, epoch) for iteration, step, epoch in self._clocks}

    def look(self) -> bool:
        """Read new rows; False if nothing has changed."""
        before = self.problem
        try:
            with regular(self.path) as file:
                return self._read(file) or self.problem != before
        except FileNotFoundError:
            return False
        except OSError as error:
            self.problem = f"{self.path.name} cannot be read: {error.strerror or error}"
        return self.problem != before

    def _read(self, file: BinaryIO) -> bool:
        status = os.fstat(file.fileno())
        if status.st_ino != self._inode or not self._is_where_it_was(file):
            self._begin(status.st_ino)
        if status.st_size <= self._offset or self.problem:
            return False
        file.seek(self._offset)
        try:
            for line in self._lines(file):
                self._offset += len(line)
                self._latest = line
                self._take(line)
        except ValueError as error:
            self.problem = f"{self.path.name} {error}; shown: the {self._rows} rows before it"
        return True

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        """The lines to take."""
        return whole_lines(file)

    def _is_where_it_was(self, file: BinaryIO) -> bool:
        """False if a resumed run has cut off the row that was read last, and perhaps more."""
        file.seek(self._offset - len(self._latest))
        return file.read(len(self._latest)) == self._latest

    def _take(self, line: bytes) -> None:
        row = record_of(line)
        if row is None or (clocks := _clocks_of(row)) is None:
            return
        iteration, _, epoch = clocks
        self._rows += 1
        self._clocks.add(clocks)
        for name, value in row.items():
            if name in CLOCKS or OWN_CLOCK.fullmatch(name):
                continue
            if (number := _number(value)) is not None:
                if self._is_shown(name):
                    self._add(name, iteration, epoch, number)
            elif _is_too_fine(value):
                self._notes.add(f"shown: histograms of at most {budget.MOST_RANGES} ranges")
            elif (histogram := _histogram(iteration, value)) and self._is_shown(name):
                known = self.histograms.setdefault(name, Thinned(budget.MOST_HISTOGRAMS))
                known.add(histogram)
            else:
                self._take_exhibit(name, iteration, value)

    def _add(self, name: str, iteration: int, epoch: int, number: float) -> None:
        if (series := self.series.get(name)) is None:
            series = self.series[name] = Series()
        series.add(iteration, epoch, number)

    def _take_exhibit(self, name: str, iteration: int, value: Any) -> None:
        try:
            exhibit = exhibit_of(iteration, value)
        except TooLargeError:
            most = f"{budget.MOST_IN_MEDIUM:,}"
            self._notes.add(f"shown: curves and matrices of at most {most} numbers")
            return
        if exhibit and self._is_shown(name):
            self.exhibits.setdefault(name, Thinned(budget.MOST_MEDIA)).add(exhibit)

    def _is_shown(self, name: str) -> bool:
        """False for a metric beyond the limit, or with too long a name."""
        is_full = len(self._names) >= budget.MOST_SHOWN
        if name not in self._names and (is_full or len(name) > budget.LONGEST_NAME):
            self._notes.add(
                f"shown: the first {budget.MOST_SHOWN} metrics, of names with at most "
                f"{budget.LONGEST_NAME} characters"
            )
            return False
        self._names.add(name)
        return True


class MetricFiles:
    """The metrics of all files of JSON lines in a directory, by name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._files: dict[Path, MetricFile] = {}
        self._names, self._notes = set[str](), set[str]()
        self._left_out = 0

    def look(self) -> bool:
        """Read new rows; False if nothing has changed."""
        paths = row_files(self.directory)
        self._left_out = max(0, len(paths) - budget.MOST_FILES)
        for path in paths[: budget.MOST_FILES]:
            if path not in self._files:
                self._files[path] = self._file(path)
        looks = [file.look() for file in self._files.values()]
        return any(looks)

    def _file(self, path: Path) -> MetricFile:
        return MetricFile(path, self._names, self._notes)

    @property
    def problems(self) -> list[str]:
        """Messages on data of the files that is not shown, with reasons."""
        problems = [file.problem for file in self._files.values() if file.problem]
        if self._left_out:
            most = budget.MOST_FILES
            problems.append(f"shown: the first {most} of {most + self._left_out} files of rows")
        return problems + sorted(self._notes)

    @property
    def series(self) -> dict[str, Series]:
        """The series by metric; if two files have a metric, the first file counts."""
        return _merged([file.series for file in self._files.values()])

    @property
    def histograms(self) -> dict[str, Thinned[HistogramRow]]:
        """The histograms by metric."""
        return _merged([file.histograms for file in self._files.values()])

    @property
    def exhibits(self) -> dict[str, Thinned[Exhibit]]:
        """The texts, curves and matrices by metric."""
        return _merged([file.exhibits for file in self._files.values()])

    @property
    def clocks(self) -> dict[int, tuple[int, int]]:
        """Step and epoch by the iterations that have a row."""
        return _merged([file.clocks for file in self._files.values()])


def row_files(directory: Path) -> list[Path]:
    """The files of rows in a directory."""
    return [path for path in sorted(directory.glob("*.jsonl")) if path.name != JOURNAL]


def is_row(line: bytes) -> bool:
    """True if a line has the clocks of a row."""
    return _clocks_of(record_of(line) or {}) is not None


def _clocks_of(row: dict[str, Any]) -> tuple[int, int, int] | None:
    """Iteration, step and epoch of a row; None if it is no row."""
    try:
        clocks = (row["iteration"], row.get("step", 0), row.get("epoch", 0))
        iteration, step, epoch = (int(float(clock)) for clock in clocks)
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
    is_sound = all(0 <= clock < budget.BEYOND for clock in (iteration, step, epoch))
    return (iteration, step, epoch) if is_sound else None


def _merged(maps: list[dict[Any, Any]]) -> dict[Any, Any]:
    """All entries, in the order of the files; of the same key, the first."""
    merged: dict[Any, Any] = {}
    for each in maps:
        merged |= {key: value for key, value in each.items() if key not in merged}
    return merged


def _histogram(iteration: int, value: Any) -> HistogramRow | None:
    """What `JSONLines` wrote of a histogram; None for anything else."""
    if not isinstance(value, dict):
        return None
    counts, edges = _numbers(value.get("counts")), _numbers(value.get("edges"))
    if not counts or len(edges) != len(counts) + 1:
        return None
    is_sound = min(counts) >= 0 and sorted(edges) == edges and -HUGE < edges[0] <= edges[-1] < HUGE
    return HistogramRow(iteration, counts, edges) if is_sound else None


def _is_too_fine(value: Any) -> bool:
    """True for a histogram of more ranges than are read."""
    counts = value.get("counts") if isinstance(value, dict) else None
    return isinstance(counts, list) and len(counts) > budget.MOST_RANGES


def _numbers(values: Any) -> list[float]:
    """A list of finite numbers; empty if it is anything else."""
    numbers = [_number(each) for each in values] if isinstance(values, list) else []
    finite = [each for each in numbers if each is not None and math.isfinite(each)]
    return finite if len(finite) == len(numbers) else []


def _number(value: Any) -> float | None:
    """A number; numbers that JSON cannot hold were written as text."""
    if isinstance(value, str):
        return float(value) if value in ("NaN", "Infinity", "-Infinity") else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return as_float(value)
