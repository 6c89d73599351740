"""Opening the files of a run directory: regular files only, and never through a link."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

REGULAR_ONLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@contextmanager
def regular(path: Path) -> Generator[BinaryIO, None, None]:
    """Open a regular file to read it; a link or a pipe is refused."""
    size_of(path)
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | REGULAR_ONLY)) as file:
        yield file


def size_of(path: Path) -> int:
    """The size of a regular file, without opening it."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path.name} is not a regular file")
    return status.st_size
