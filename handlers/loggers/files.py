"""Files of rows: written at once, cut where a run is resumed, and of one run each."""

from __future__ import annotations

import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from ...engine import Engine, EventEnum, Trigger
from ..common import AT_EACH_ROW
from ..files import appending, move_aside, refuse_odd, refuse_removed, regular, replacing, sweep
from .logger import LogsRows
from .rows import Row, Start

logger: logging.Logger = logging.getLogger("camshaft")


class NoRowError(ValueError):
    """A line of a log is no row."""


class RowFile(ABC):
    """One file of rows: a writer that goes on where the run is.

    A line that does not fit is taken back, and raises.
    """

    kind: ClassVar[str]
    """The name of the logger."""

    def __init__(self, path: str | os.PathLike[str], start: Start) -> None:
        """Open the file: drop later rows in a resumed run, move the file of another run aside."""
        self.path: Path = Path(start.folder, path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        sweep(self.path.parent, re.escape(self.path.name))
        refuse_odd(self.path)
        size = last = 0
        if start.is_resumed and self.path.exists():
            size, last = self.before(start.first)
            if start.row is not None and not self._may_have(start.row, size):
                move_aside(self.path, self.kind)  # it has begun to write here since
                size, last = 0, start.last
            elif self.path.lstat().st_nlink > 1:  # a hard link would be truncated too
                with regular(self.path) as file:
                    replace(self.path, iter(lambda: file.read(2**20), b""))
        elif self.path.exists():
            move_aside(self.path, self.kind)
        if last < start.last:
            logger.warning(
                "%s lacks the last rows before iteration %d, where the run goes on: it was cut or "
                "moved away, or the log has another path now",
                *(self.path, start.first),
            )
        self._epoch = 0
        self._open()
        self._cut(size)

    @abstractmethod
    def before(self, first: int) -> tuple[int, int]:
        """The bytes of the rows before iteration `first`, and the iteration of the last of them.

        They are found from the end of the file; 0 and 0 if there are none.
        """

    @abstractmethod
    def line_of(self, row: Row) -> str:
        """A row as one line."""

    def own_line_of(self, row: Row) -> str | None:
        """The line by which this file has a row; None if it cannot have it."""
        return self.line_of(row)

    def write(self, row: Row) -> None:
        """Write a row; from then on a kill of the process cannot lose it.

        The first row of an epoch looks whether the file is still there.

        Raises:
            RemovedError: Somebody has removed it.
        """
        if row.epoch != self._epoch:
            self._epoch = row.epoch
            refuse_removed(self._descriptor, self.path)
        line = self.line_of(row)  # it may replace this file
        self.append(line.encode())

    def sync(self) -> None:
        """Make all rows survive a crash.

        Raises:
            RemovedError: Somebody has removed the file, and the rows with it.
        """
        os.fsync(self._descriptor)
        refuse_removed(self._descriptor, self.path)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def put_in_place(self, lines: Iterable[str]) -> None:
        """Give the file other lines, all at once: a reader finds the old or the new file."""
        replace(self.path, (line.encode() for line in lines))
        old = self._descriptor
        self._open()
        os.close(old)

    @contextmanager
    def reading(self) -> Generator[BinaryIO, None, None]:
        """Open the file to read its lines; an error names the file, and says what to do."""
        try:
            with regular(self.path) as file:
                yield file
        except NoRowError:
            raise
        except ValueError as error:
            raise ValueError(
                f"{self.path} is no {self.kind} log: it {error}. Move the file away, or give the "
                "log another path"
            ) from error

    def no_row(self, place: int) -> NoRowError:
        """The error about a line that is no row, by its place in the file."""
        number, left = 1, place
        with regular(self.path) as file:
            while piece := file.read(min(left, 2**16)):
                left -= len(piece)
                number += piece.count(b"\n")
        return NoRowError(
            f"line {number} of {self.path} is no row of a {self.kind} log, which would be cut off "
            "here to resume the run; move the file away, or give the log another path"
        )

    def _may_have(self, row: Row, place: int) -> bool:
        """False if another row is at this place of the file, which is that of another run."""
        line = self.own_line_of(row)
        with regular(self.path) as file:
            file.seek(place)
            found = file.readline(1 if line is None else len(line.encode()))
        return not found or (line is not None and line.encode().startswith(found))  # it may be torn

    def _open(self) -> None:
        self._descriptor = appending(self.path)
        self._size = os.fstat(self._descriptor).st_size

    def _cut(self, size: int) -> None:
        """Drop the lines after `size` bytes; a kill leaves all of them or none."""
        os.ftruncate(self._descriptor, size)
        self._size = size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            self.append(b"\n")

    def append(self, data: bytes) -> None:
        """Write whole lines, or none of them."""
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except BaseException:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)


@dataclass(frozen=True, eq=False)
class LogsToFile(LogsRows):
    """The base of the loggers that write one file."""

    path: str | os.PathLike[str]
    _: KW_ONLY
    when: EventEnum | Trigger = AT_EACH_ROW
    usual_name: ClassVar[str]
    opens: ClassVar[type[RowFile]]
    """The writer of the file."""

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Write rows by the trigger; have them on the disk before a checkpoint counts on them.

        Raises:
            IsADirectoryError: The path is a directory.
            NotRegularError: It is a link, a pipe or a device.
            ValueError: Another handler writes to the same file.
        """
        kind = type(self).__name__
        if Path(self.path).is_dir():
            raise IsADirectoryError(
                f"{kind}({str(self.path)!r}) is a directory; name a file in it: "
                f"{kind}({str(Path(self.path) / self.usual_name)!r})"
            )
        refuse_odd(Path(self.path))
        for name, other in engine.handlers.items():
            place = os.path.abspath(str(getattr(other, "path", "")))
            if other is not self and place == os.path.abspath(self.path):
                raise ValueError(
                    f"{name} writes to {self.path} already; give this logger a file of its own"
                )
        super().attach(engine)

    def writer(self, start: Start) -> RowFile:
        """Open the file where the run is."""
        return self.opens(self.path, start)


def replace(path: Path, pieces: Iterable[bytes]) -> None:
    """Give a file other bytes, all at once, and durably."""
    with replacing(path) as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
