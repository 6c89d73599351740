"""Rows of metrics as `JSONLines` wrote them, without lines that are torn or not a row."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
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


class Tail:
    """A file that grows: each look reads what is new; a file that was replaced is read anew."""

    def __init__(self, path: Path, begin: Callable[[], None], take: Callable[[bytes], None]):
        """Call `begin` before the first line of a file, and `take` for each line."""
        self.path, self._begin, self._take = path, begin, take
        self._inode, self._offset = -1, 0

    def look(self) -> bool:
        """Read what is new; False if nothing is."""
        try:
            with self.path.open("rb") as file:
                return self._read(file)
        except FileNotFoundError:
            return False

    def _read(self, file: Any) -> bool:
        status = os.fstat(file.fileno())
        if status.st_ino != self._inode or status.st_size < self._offset:
            self._inode, self._offset = status.st_ino, 0
            self._begin()
        if status.st_size == self._offset:
            return False
        file.seek(self._offset)
        for line in file:
            if not line.endswith(b"\n"):
                break  # it is still being written
            self._offset += len(line)
            self._take(line)
        return True


class MetricFiles:
    """The metrics of all files of JSON lines in a directory, by name."""

    def __init__(self, directory: Path) -> None:
        """Start with nothing read."""
        self.directory = directory
        self._files: dict[Path, tuple[Tail, dict[str, Series]]] = {}

    def look(self) -> bool:
        """Read what is new; False if nothing is."""
        for path in sorted(self.directory.glob("*.jsonl")):
            if path not in self._files and path.name != JOURNAL:
                series: dict[str, Series] = {}
                self._files[path] = (Tail(path, series.clear, _into(series)), series)
        looks = [tail.look() for tail, _ in self._files.values()]
        return any(looks)

    @property
    def series(self) -> dict[str, Series]:
        """The series by metric; if two files have a metric, the first file by name counts."""
        merged: dict[str, Series] = {}
        for _, series in self._files.values():
            for name, each in series.items():
                merged.setdefault(name, each)
        return merged


def _into(series: dict[str, Series]) -> Callable[[bytes], None]:
    def take(line: bytes) -> None:
        try:
            row = json.loads(line)
            iteration, epoch = int(row["iteration"]), int(row.get("epoch", 0))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            return
        for name, value in row.items():
            if name in CLOCKS or OWN_CLOCK.fullmatch(name):
                continue
            if (number := _number(value)) is not None:
                each = series.setdefault(name, Series())
                each.iterations.append(iteration)
                each.epochs.append(epoch)
                each.values.append(number)

    return take


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
