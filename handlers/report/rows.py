"""Rows of metrics as `JSONLines` wrote them, without lines that are torn or not a row."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..journal import JOURNAL

CLOCKS = frozenset({"iteration", "step", "epoch", "time"})
OWN_CLOCK = re.compile(r"\w+\.[A-Z][A-Z0-9_]*")  # such as GanEvents.CRITIC_UPDATED


@dataclass
class Series:
    """The values of one metric, in the order of the rows."""

    iterations: list[int] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


class MetricFile:
    """A file of rows that grows: each look reads what is new; a replaced file is read anew."""

    def __init__(self, path: Path) -> None:
        """Start with nothing read."""
        self.path = path
        self.series: dict[str, Series] = {}
        self._inode, self._offset = -1, 0

    def look(self) -> bool:
        """Read what is new; False if nothing is."""
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._inode, self._offset = status.st_ino, 0
                self.series.clear()
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
            iteration, epoch = int(row["iteration"]), int(row.get("epoch", 0))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            return
        for name, value in row.items():
            if name in CLOCKS or OWN_CLOCK.fullmatch(name):
                continue
            if (number := _number(value)) is not None:
                each = self.series.setdefault(name, Series())
                each.iterations.append(iteration)
                each.epochs.append(epoch)
                each.values.append(number)


class MetricFiles:
    """The metrics of all files of JSON lines in a directory, by name."""

    def __init__(self, directory: Path) -> None:
        """Start with nothing read."""
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
    def series(self) -> dict[str, Series]:
        """The series by metric; if two files have a metric, the first file counts."""
        merged: dict[str, Series] = {}
        for file in self._files.values():
            merged |= {name: each for name, each in file.series.items() if name not in merged}
        return merged


def _number(value: Any) -> float | None:
    """A number; numbers that JSON cannot hold were written as text."""
    if isinstance(value, str):
        return float(value) if value in ("NaN", "Infinity", "-Infinity") else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return None
