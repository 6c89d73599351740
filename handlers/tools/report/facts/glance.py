"""Rows of which one metric is read: what a table of runs shows, in a small part of the time.

Nearly all rows of a long file are flat: numbers under names that earlier rows have. One regular
expression goes over these. It finds the values of the metric, and every line that is anything else;
such a line is read as a page reads it. So there is no index that could be out of date.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from ....files import budget, lines_from_end, whole_lines
from .metric_files import MetricFile, MetricFiles, is_row

SMALLEST, BLOCK = 2**12, 2**20
"""Bytes of the first read, by whose names the next is read, and of each later one."""
Choice = Callable[[Iterable[str]], str]
"""Which of the metrics with these names to read; "" for none of them."""
CLOCK = rb"(?:0|[1-9][0-9]{0,17}+)"
NUMBER = rb"-?+(?:0|[1-9][0-9]{0,30}+)(?:\.[0-9]++|)(?:[eE][+-]?+[0-9]++|)"
"""What JSON takes for a number, but for very long integers."""
NOT_FINITE = rb'"(?:NaN|-?+Infinity)"'
OWN_CLOCK = rb'"\w++\.[A-Z][A-Z0-9_]*+": ' + CLOCK


class GlancedFile(MetricFile):
    """A file of rows, of which this keeps the names of all metrics, and the extremes of one."""

    def __init__(self, path: Path, names: set[str], notes: set[str], choose: Choice) -> None:
        """Read nothing yet."""
        super().__init__(path, names, notes)
        self._choose = choose
        self.metric: str = ""
        self.extremes: list[float] = []
        """The lowest and highest finite value of the metric, the earlier of equal ones; or none."""

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        """The lines that are not flat, and the latest rows; again, if another metric is chosen."""
        pattern, names, place, size = re.compile(b"()(.*\n)"), 0, 0, SMALLEST
        while place + size < budget.LARGEST_LOG:
            file.seek(place)
            block = file.read(size)
            end = block.rfind(b"\n", 0, max(0, block.rfind(b"\n"))) + 1
            numbers = list[bytes]()
            for number, line in pattern.findall(block, 0, end):
                if number:
                    numbers.append(number)
                elif line:
                    self._compare(numbers)
                    numbers.clear()
                    yield line
            self._compare(numbers)
            backwards = (line for _, line in lines_from_end(BytesIO(block[:end])))
            yield from islice(filter(is_row, backwards), 1)  # the latest clocks of the block
            file.seek(place + end)
            if not end:  # the last line, or one as long as the block
                if not (line := next(whole_lines(file), b"")):
                    return
                yield line
            place, size = file.tell(), min(2 * size, BLOCK)
            if len(self.series) != names:
                names = len(self.series)
                if (metric := self._choose(self.series)) != self.metric:
                    self.metric, place = metric, 0
                    self.extremes.clear()
                pattern = self._flat()
        yield from whole_lines(file)

    def _add(self, name: str, iteration: int, epoch: int, number: float) -> None:
        if name == self.metric:
            self._compare([number])
        if name not in self.series:
            super()._add(name, iteration, epoch, number)

    def _compare(self, numbers: Iterable[float | bytes]) -> None:
        if known := [*self.extremes, *filter(math.isfinite, map(float, numbers))]:
            self.extremes[:] = min(known), max(known)

    def _flat(self) -> re.Pattern[bytes]:
        """Matches a flat row, and gives the value of the metric; or gives a line of another kind.

        The names are those that have had numbers so far. A metric that was not in the first row is
        in few rows, so all rows up to the next of these are one match.
        """
        value = b"(?:%b|%b)" % (NUMBER, NOT_FINITE)
        items = {name: _item(name, value) for name in self.series}
        others = [b'"(?:step|epoch)": ' + CLOCK, OWN_CLOCK]
        if not self.metric:
            return re.compile(b"()" + _row([*items.values(), *others]) + b"|(.*\n)")
        wanted = _item(self.metric, b"(?:(%b)|%b)" % (NUMBER, NOT_FINITE))
        others = [each for name, each in items.items() if name != self.metric] + others
        # Not `*+`: Python 3.11 mistakes the span of a group inside of it (python/cpython#101955).
        pattern = _row([wanted, *others], b"*") + b"|(.*\n)"
        firsts = [each.iterations[0] for each in self.series.values()]
        if self.series[self.metric].iterations[0] > firsts[0]:
            pattern = b"(?:%b)*+(?:%b|\\Z)" % (_row(others), pattern)
        return re.compile(pattern)


def _item(name: str, value: bytes) -> bytes:
    """A name and its value as JSONLines writes them, for a regular expression."""
    return re.escape(json.dumps(name).encode()) + b": " + value


def _row(items: Iterable[bytes], repeated: bytes = b"*+") -> bytes:
    """A row that begins with its iteration, and has any of these items."""
    row = rb"\{%b(?:, (?:%b))%b\}\n"
    return row % (_item("iteration", CLOCK), b"|".join(items), repeated)


class GlancedFiles(MetricFiles):
    """The rows of a directory, of which this keeps what a table of runs shows."""

    def __init__(self, directory: Path, choose: Choice) -> None:
        super().__init__(directory)
        self._choose = choose

    def _file(self, path: Path) -> MetricFile:
        return GlancedFile(path, self._names, self._notes, self._choose)

    def extremes(self, metric: str) -> list[float] | None:
        """The lowest and highest finite value of a metric, if any, by the first file that has it.

        None if another metric was chosen there.
        """
        for file in self._files.values():
            if metric in file.series and isinstance(file, GlancedFile):
                return file.extremes if file.metric == metric else None
        return None
