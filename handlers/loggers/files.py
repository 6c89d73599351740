"""Files of rows: written at once, cut where a run is resumed, never mixed up with another run's."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path

logger = logging.getLogger("camshaft")


class LineFile:
    """A file that takes whole lines: one that does not fit is taken back, and raises."""

    def __init__(self, path: Path) -> None:
        """Open the file at its end; it is made if there is none."""
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._size = os.fstat(self._descriptor).st_size

    def write(self, line: str) -> None:
        """Write a line, which a kill of the process cannot take any more."""
        data = line.encode()
        try:
            written = os.write(self._descriptor, data)
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except BaseException:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)

    def sync(self) -> None:
        """Have all lines on the disk.

        Raises:
            FileNotFoundError: Somebody has removed the file, so the lines would be gone with it.
        """
        os.fsync(self._descriptor)
        if not os.fstat(self._descriptor).st_nlink:
            raise FileNotFoundError("the file was removed while it was written")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def replace_lines(path: Path, lines: Iterable[str]) -> None:
    """Give a file other lines, all at once: whenever one looks it is the old or the new one."""
    draft = path.with_name(f"{path.name}.tmp")
    with draft.open("w", encoding="utf-8", newline="") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def move_aside(path: Path, kind: str) -> None:
    """Rename another run's file to `<path>.1`, or the next number that is free."""
    if path.stat().st_size:
        names = (path.with_name(f"{path.name}.{number}") for number in count(1))
        aside = next(name for name in names if not name.exists())
        path.rename(aside)
        logger.warning("%s: %s holds the rows of another run; moved to %s", kind, path, aside)


def refuse_directory(path: str | os.PathLike[str], kind: str, file: str) -> None:
    """Raise if a path that should be a file's is a directory.

    Raises:
        IsADirectoryError: It is one.
    """
    if Path(path).is_dir():
        raise IsADirectoryError(
            f"{kind}({str(path)!r}) is a directory; name a file in it: "
            f"{kind}({str(Path(path) / file)!r})"
        )
