"""Files that are really on the disk, and are checked when they are read."""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from uuid import uuid4

from .manifest import Contents

CHUNK = 16 * 2**20
LEFTOVER = re.compile(r"\.(tmp|del)-(iteration-\d+(\.\d+)?|LATEST)-[0-9a-f]{32}")


def contents_of(path: Path) -> Contents:
    """The size and checksums of a file.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    size_of(path)
    size, sums = 0, list[int]()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            size += len(chunk)
            sums.append(zlib.crc32(chunk))
    return Contents(size, sums)


def size_of(path: Path) -> int:
    """The size of a file, which is not read.

    Raises:
        OSError: It is not there, or is no regular file.
    """
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path.name} is no regular file")
    return status.st_size


def synchronise(path: Path) -> None:
    """Wait until a file's bytes, or a directory's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a directory with its parents, so that they are still there after a power cut."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        synchronise(path.parent)


@contextmanager
def appearing(place: Path) -> Generator[Path, None, None]:
    """A temporary name beside `place`; what is there at the end appears at `place` at once.

    If anything is raised, nothing appears and nothing is left.
    """
    temporary = _beside(place, "tmp")
    try:
        yield temporary
        synchronise(temporary)
        temporary.replace(place)
        synchronise(place.parent)
    except BaseException:
        _remove(temporary)
        raise


def vanish(path: Path) -> None:
    """Remove a directory whose name goes at once, before its first file does."""
    condemned = _beside(path, "del")
    path.rename(condemned)
    _remove(condemned)


def sweep(directory: Path) -> None:
    """Remove what a process that was killed had not finished writing or removing."""
    for path in directory.iterdir():
        if LEFTOVER.fullmatch(path.name):
            _remove(path)


def _beside(path: Path, kind: str) -> Path:
    return path.with_name(f".{kind}-{path.name}-{uuid4().hex}")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
