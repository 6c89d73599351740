"""Files that are really on the disk, and are checked when they are read."""

from __future__ import annotations

import errno
import os
import re
import stat
import zlib
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage, rmtree
from typing import BinaryIO
from uuid import uuid4

from ..format.manifest import Contents

CHUNK = 16 * 2**20
NO_DETOURS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
LEFTOVER = re.compile(r"\.(tmp|del)-(iteration-\d+(\.\d+)?|LATEST)-[0-9a-f]{32}")


@dataclass(frozen=True)
class Source:
    """What a file is to hold: so many bytes, in pieces that can be asked for again."""

    size: int
    pieces: Callable[[], Iterable[memoryview]]

    @classmethod
    def of(cls, content: bytes | memoryview) -> Source:
        """All of it in one piece."""
        return cls(len(content), lambda: [memoryview(content)])


class Sums:
    """The size and the CRC-32 of each 16 MiB of what is added piece by piece."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.size = 0
        self._sums: list[int] = []

    def add(self, piece: memoryview) -> None:
        """Go on with these bytes."""
        while piece:
            filled = self.size % CHUNK
            part, piece = piece[: CHUNK - filled], piece[CHUNK - filled :]
            before = self._sums.pop() if filled else 0
            self._sums.append(zlib.crc32(part, before))
            self.size += len(part)

    def contents(self) -> Contents:
        """What was added so far."""
        return Contents(self.size, list(self._sums))


def write_file(path: Path, source: Source, helper: Executor) -> Contents:
    """Write a new file and wait until it is on the disk; return its size and checksums.

    The checksums are taken by the helper, of the same memory, while it is written.

    Raises:
        OSError: It cannot be written.
    """
    sums = Sums()
    with path.open("xb") as file:
        for piece in source.pieces():
            for begin in range(0, len(piece), CHUNK):
                chunk = piece[begin : begin + CHUNK]
                added = helper.submit(sums.add, chunk)
                try:
                    file.write(chunk)
                finally:
                    added.result()
        file.flush()
        os.fsync(file.fileno())
    return sums.contents()


def need_space(directory: Path, size: int) -> None:
    """Refuse to begin what the disk cannot take.

    Raises:
        OSError: ENOSPC: the directory's file system has less free space than `size` bytes.
    """
    usage = disk_usage(directory)
    if usage.total and usage.free < size:  # some network file systems do not tell
        raise OSError(
            errno.ENOSPC,
            f"{os.strerror(errno.ENOSPC)}: {size:,} bytes are needed in {directory}, and "
            f"{usage.free:,} are free",
        )


def contents_of(path: Path) -> Contents:
    """The size and checksums of a file.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    with regular(path) as file:
        sums = Sums()
        while chunk := file.read(CHUNK):
            sums.add(memoryview(chunk))
    return sums.contents()


@contextmanager
def regular(path: Path) -> Generator[BinaryIO, None, None]:
    """A regular file, opened to be read; no link, and nothing that makes its reader wait.

    Raises:
        OSError: It is something else, or cannot be opened.
    """
    size_of(path)
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | NO_DETOURS)) as file:
        yield file


def size_of(path: Path) -> int:
    """The size of a regular file, which is not opened.

    Raises:
        OSError: It is something else, or is not there.
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
