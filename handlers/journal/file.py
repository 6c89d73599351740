"""The file of a journal: lines of JSON that are only ever added, and outlive their writer."""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..files import RemovedError, appending, refuse_removed, regular

try:
    import fcntl
except ImportError:  # without these locks a run that was killed looks alive
    fcntl = None  # type: ignore[assignment]

logger: logging.Logger = logging.getLogger("camshaft")

JOURNAL = "journal.jsonl"
"""The name of the file in a run's directory."""


class JournalFile:
    """A file that gets each line by one write, so a kill cannot tear earlier lines.

    An error of the file never reaches the run: the first one costs a warning, and later lines are
    still tried. A file that somebody has removed is made again, with the first line of this part.
    """

    def __init__(self) -> None:
        self._part = os.urandom(4).hex()  # names the process; uses no random generator of the run
        self._descriptor: int | None = None
        self._first = ""
        self._torn = False
        self._warned = False

    @property
    def is_open(self) -> bool:
        """True between the first line and `close`."""
        return self._descriptor is not None

    def write(self, path: Path, record: dict[str, Any]) -> None:
        """Add a line with the time of day, in seconds since 1970; open the file for the first."""
        line = json.dumps({"time": round(time.time(), 3), "part": self._part, **record}) + "\n"
        try:
            if self._descriptor is not None:
                self._open_again_if_removed(path)
            if self._descriptor is None:
                self._open(path)
            self._first = self._first or line
            self._append(line)
        except OSError as error:
            if not self._warned:
                logger.warning("Journal: cannot write to %s, the run goes on: %s", path, error)
            self._warned = True

    def close(self) -> None:
        """Close the file, if one is open."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None

    def _open(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = appending(path)
        with open(self._descriptor, "rb", closefd=False) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            self._torn = file.read(1) not in (b"", b"\n")
        if fcntl is not None:
            with suppress(OSError):  # a reader holds the lock at this moment, or there are no locks
                fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def _open_again_if_removed(self, path: Path) -> None:
        assert self._descriptor is not None
        try:
            refuse_removed(self._descriptor, path)
        except RemovedError as error:
            logger.warning("Journal: %s", error)
            self.close()
            self._open(path)
            self._append(self._first)

    def _append(self, line: str) -> None:
        assert self._descriptor is not None
        data = (("\n" if self._torn else "") + line).encode()
        self._torn = True
        if (written := os.write(self._descriptor, data)) < len(data):
            raise OSError(f"only {written} of {len(data)} bytes were written")
        self._torn = False


def is_written(path: Path) -> bool:
    """True if a living process of this machine has the file open for writing."""
    if fcntl is None:
        return True
    try:
        with regular(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return True
            return False
    except OSError:
        return False
