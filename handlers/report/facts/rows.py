"""Rows of metrics as `JSONLines` wrote them, without lines that are torn or not a row."""

from __future__ import annotations

import json
import math
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....engine.state import as_float
from ...journal import JOURNAL

CLOCKS = frozenset({"iteration", "step", "epoch", "time"})
LARGEST = 2**63
"""Counts are below it."""
OWN_CLOCK = re.compile(r"\w+\.[A-Z][A-Z0-9_]*")  # such as GanEvents.CRITIC_UPDATED


@dataclass
class Series:
    """The values of one metric, in the order of the rows."""

    iterations: list[int] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Histogram:
    """A row's histogram: how many values are in each range."""

    iteration: int
    counts: list[float]
    edges: list[float]
    """One more than counts, in growing order."""


class MetricFile:
    """A file of rows that grows: each look reads what is new; a replaced file is read anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.series: dict[str, Series] = {}
        self.histograms: dict[str, list[Histogram]] = {}
        self.clocks: dict[int, tuple[int, int]] = {}
        """Step and epoch by the iterations of the rows."""
        self.problem: str | None = None
        """Why it cannot be read; None if it can."""
        self._inode, self._offset = -1, 0

    def look(self) -> bool:
        """Read what is new; False if nothing is."""
        before, self.problem = self.problem, None
        try:
            return self._read() or before is not None
        except OSError as error:
            self.problem = error.strerror or str(error)
            return self.problem != before

    def _read(self) -> bool:
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._inode, self._offset = status.st_ino, 0
                for known in (self.series, self.histograms, self.clocks):
                    known.clear()
            if status.st_size > self._offset:
                file.seek(self._offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # it is still being written
                    self._offset += len(line)
                    self._take(line)
                return True
        return False

    def _take(self, line: bytes) -> None:
        try:
            row = json.loads(line)
            told = (row["iteration"], row.get("step", 0), row.get("epoch", 0))
            iteration, step, epoch = (int(float(clock)) for clock in told)
            if not all(0 <= clock < LARGEST for clock in (iteration, step, epoch)):
                return
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            return
        self.clocks[iteration] = (step, epoch)
        for name, value in row.items():
            if name in CLOCKS or OWN_CLOCK.fullmatch(name):
                continue
            if (number := _number(value)) is not None:
                each = self.series.setdefault(name, Series())
                each.iterations.append(iteration)
                each.epochs.append(epoch)
                each.values.append(number)
            elif histogram := _histogram(iteration, value):
                self.histograms.setdefault(name, []).append(histogram)


class MetricFiles:
    """The metrics of all files of JSON lines in a directory, by name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._files: dict[Path, MetricFile] = {}

    def look(self) -> bool:
        """Read what is new; False if nothing is."""
        for path in sorted(self.directory.glob("*.jsonl")):
            if path.name != JOURNAL and path not in self._files:
                self._files[path] = MetricFile(path)
        looks = [file.look() for file in self._files.values()]
        return any(looks)

    @property
    def unread(self) -> dict[str, str]:
        """The names of files that cannot be read, with the reasons."""
        return {path.name: each.problem for path, each in self._files.items() if each.problem}

    @property
    def series(self) -> dict[str, Series]:
        """The series by metric; if two files have a metric, the first file counts."""
        return _merged([file.series for file in self._files.values()])

    @property
    def histograms(self) -> dict[str, list[Histogram]]:
        """The histograms by metric."""
        return _merged([file.histograms for file in self._files.values()])

    @property
    def clocks(self) -> dict[int, tuple[int, int]]:
        """Step and epoch by the iterations that have a row."""
        return _merged([file.clocks for file in self._files.values()])


def _merged(maps: list[dict[Any, Any]]) -> dict[Any, Any]:
    """All entries, in the order of the files; of the same key, the first."""
    merged: dict[Any, Any] = {}
    for each in maps:
        merged |= {key: value for key, value in each.items() if key not in merged}
    return merged


def _histogram(iteration: int, value: Any) -> Histogram | None:
    """What `JSONLines` wrote of a histogram; None for anything else."""
    if not isinstance(value, dict):
        return None
    counts, edges = _numbers(value.get("counts")), _numbers(value.get("edges"))
    if not counts or len(edges) != len(counts) + 1:
        return None
    is_sound = min(counts) >= 0 and sorted(edges) == edges
    return Histogram(iteration, counts, edges) if is_sound else None


def _numbers(values: Any) -> list[float]:
    """A list of finite numbers; empty if it is anything else."""
    told = [_number(each) for each in values] if isinstance(values, list) else []
    found = [each for each in told if each is not None and math.isfinite(each)]
    return found if len(found) == len(told) else []


def _number(value: Any) -> float | None:
    """A number; numbers that JSON cannot hold were written as text."""
    if isinstance(value, str):
        return float(value) if value in ("NaN", "Infinity", "-Infinity") else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return as_float(value)
