"""`camshaft tail`: the rows of a run as they are written."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from ....engine.state import as_float
from ...common import readable_metrics, show
from ...files import lines_from_end, printable, record_of, regular, whole_lines
from ...journal import JOURNAL, is_written
from ..report import NothingToReportError, outcome, parts_in

PAUSE = 0.3
"""Seconds between two looks at the files."""
CLOCKS = ("iteration", "step", "epoch")


def tail(path: Path, count: int, as_json: bool) -> int:
    """Print the last rows of a run and those that come, until it ends or until Ctrl-C."""
    if not path.is_dir():
        raise NothingToReportError(f"{path} is no directory")
    files, ending = dict[Path, FollowedFile](), Ending(path)
    if not _rows_in(path) and not ending.path.exists():
        raise NothingToReportError(f"{path} holds no rows, which JSONLines writes, and no journal")
    if not parts_in(path)[0]:
        _say(f"{path} has no journal to read, so nothing tells when the run ends; Ctrl-C ends this")
    try:
        while True:
            is_over = ending.look()  # before the rows: what was written until then is shown
            names = _rows_in(path)
            for each in names:
                file = files.setdefault(each, FollowedFile(each, count))
                label = f"{each.name}: " * (len(names) > 1)
                for row in file.news():
                    if line := json.dumps(row) if as_json else _line(row):
                        show([line if as_json else label + line])
            sys.stdout.flush()
            if is_over:
                _say(f"{path}: {ending.text}")
                return 0
            time.sleep(PAUSE)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 0


class FollowedFile:
    """A file of rows that grows.

    A run that resumes cuts its rows back to the checkpoint, and writes the same bytes again: these
    rows were shown, so only what comes after them is new.
    """

    def __init__(self, path: Path, count: int) -> None:
        self.path: Path = path
        self._count = count
        self._offset, self._latest, self._first = -1, b"", b""

    def news(self) -> Iterator[dict[str, Any]]:
        """The rows since the last call; first the last rows."""
        with suppress(FileNotFoundError), regular(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            if self._offset < 0:
                found = islice(lines_from_end(file), self._count + 1)
                lines = [(at, line) for at, line in found if line.endswith(b"\n")][: self._count]
                self._offset = lines[-1][0] if lines else (size if not self._count else 0)
            elif self._is_another(file, size):
                _say(f"{self.path.name} was begun anew")
                self._offset, self._latest = 0, b""
            file.seek(0)
            self._first = file.readline()
            if size > self._offset:
                file.seek(self._offset)
                for line in whole_lines(file):
                    self._offset += len(line)
                    self._latest = line
                    if (row := record_of(line)) and "iteration" in row:
                        yield row

    def _is_another(self, file: Any, size: int) -> bool:
        """True if what was shown is not what the file holds."""
        first = file.readline()
        if first.endswith(b"\n") and self._first.endswith(b"\n") and first != self._first:
            return True
        if size < self._offset:
            return False
        file.seek(self._offset - len(self._latest))
        return bool(file.read(len(self._latest)) != self._latest)


class Ending:
    """Whether a run has ended, by its journal."""

    def __init__(self, directory: Path) -> None:
        self.path: Path = directory / JOURNAL
        self.text: str = ""
        """How the newest part of the run ended; empty while it goes on."""
        self._signs: tuple[int, bool] | None = None

    def look(self) -> bool:
        """True if the run has ended."""
        with suppress(OSError):
            signs = (self.path.stat().st_size, is_written(self.path))
            if signs != self._signs:  # a long journal takes a while to read
                self._signs, (parts, _) = signs, parts_in(self.path.parent)
                self.text = "" if not parts or parts[-1].is_open else outcome(parts[-1])
        return bool(self.text)


def _rows_in(path: Path) -> list[Path]:
    return [each for each in sorted(path.glob("*.jsonl")) if each.name != JOURNAL]


def _line(row: dict[str, Any]) -> str:
    """A row for people: clocks and numbers; empty without a number."""
    numbers = {
        name: as_float(value) if type(value) is int else float(value)
        for name, value in row.items()
        if name not in CLOCKS
        and (value in ("NaN", "Infinity", "-Infinity") or type(value) in (int, float))
    }
    clocks = "  ".join(f"{name} {row[name]}" for name in CLOCKS if name in row)
    return f"{clocks}  {readable_metrics(numbers)}" if numbers else ""


def _say(text: str) -> None:
    print("camshaft:", printable(text), file=sys.stderr, flush=True)
