"""The file of a journal: lines of JSON that are only ever added, and outlive their writer."""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

from ..files import (
    RemovedError,
    Thinned,
    appending,
    budget,
    record_of,
    refuse_removed,
    regular,
    values_in,
    whole_lines,
)

try:
    import fcntl
except ImportError:  # without these locks a run that was killed looks alive
    fcntl = None  # type: ignore[assignment]

logger: logging.Logger = logging.getLogger("camshaft")

JOURNAL = "journal.jsonl"
"""The name of the file in a run's directory."""
NUMBER = itemgetter(0)


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


class Records(list[dict[str, Any]]):
    """The lines of a journal."""

    problem = ""
    """Why it could not be read, or not to its end."""


def read_journal(path: Path) -> Records:
    """The lines of a journal, without lines that are torn or something else.

    Of many signs of life of one process some are left out; a journal may tell of a year.

    >>> read_journal(Path("there/is/no/journal.jsonl"))
    []
    """
    processes: dict[str, ProcessLines] = {}
    values, problem = 0, ""
    try:
        with regular(path) as file:
            for number, line in enumerate(whole_lines(file)):
                record = record_of(line)
                if record is None or not isinstance(record.get("event"), str):
                    continue
                process = processes.setdefault(str(record.get("part")), ProcessLines())
                if process.add(number, record) or values_in(line) > budget.ORDINARY:
                    values += max(values_in(line), budget.ORDINARY)
                if values > budget.MOST_IN_EVENTS:
                    raise ValueError(f"has more than {budget.MOST_IN_EVENTS} values in its events")
    except (FileNotFoundError, NotADirectoryError):
        pass
    except ValueError as error:
        problem = f"{path.name} {error}; shown: what comes before"
    except OSError as error:
        problem = f"{path.name} cannot be read: {error.strerror or error}"
    kept = [each for process in processes.values() for each in process.numbered]
    records = Records(record for _, record in sorted(kept, key=NUMBER))
    records.problem = problem
    return records


class ProcessLines:
    """The lines of one process, with their numbers in the journal."""

    def __init__(self) -> None:
        self._events: list[tuple[int, dict[str, Any]]] = []
        self._signs = Thinned[tuple[int, dict[str, Any]]](budget.MOST_KEPT)

    def add(self, number: int, record: dict[str, Any]) -> bool:
        """Add a line; False for a sign of life, which may be left out later."""
        is_event = record["event"] != "running" or not self._events
        (self._events.append if is_event else self._signs.add)((number, record))
        return is_event

    @property
    def numbered(self) -> list[tuple[int, dict[str, Any]]]:
        """The lines that are kept."""
        return [*self._events, *self._signs]


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
