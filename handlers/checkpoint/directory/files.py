"""Files that are written durably, and checked when they are read."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Collection, Generator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from shutil import disk_usage

from ...files import beside, created, remove, shared
from ...files import sweep as sweep_beside
from ..format import Checksums, Payload

CHUNK = 16 * 2**20
SMALLEST = 2**20
"""The fewest bytes of a file that checkpoints share."""
OWN = r"iteration-\d+(\.\d+)?|LATEST"
"""The names of what a run writes to its directory."""


class RunningChecksums:
    """The checksums of bytes that are added piece by piece."""

    def __init__(self) -> None:
        self.size = 0
        self._sums: list[int] = []

    def add(self, piece: memoryview) -> None:
        """Add these bytes."""
        while piece:
            filled = self.size % CHUNK
            part, piece = piece[: CHUNK - filled], piece[CHUNK - filled :]
            before = self._sums.pop() if filled else 0
            self._sums.append(zlib.crc32(part, before))
            self.size += len(part)

    def result(self) -> Checksums:
        """The checksums of all bytes so far."""
        return Checksums(self.size, list(self._sums))


def write_files(
    directory: Path,
    payloads: Mapping[str, Payload],
    earlier: Path | None,
    known: Mapping[str, Checksums],
) -> dict[str, Checksums]:
    """Write new files and wait until they are on the disk; return their checksums.

    A file with the same bytes as in the earlier checkpoint is not written: it becomes a hard link.

    Args:
        directory: The new checkpoint, inside the directory of all.
        payloads: The files.
        earlier: The earlier checkpoint.
        known: The checksums of its files.

    Raises:
        OSError: Writing failed, or there is less space than that takes.
    """
    files = {
        name: known[name]
        for name, payload in payloads.items()
        if earlier is not None
        and name in known
        and known[name].size == payload.size >= SMALLEST
        and shared(earlier / name, directory / name, payload.pieces())
    }
    rest = {name: payload for name, payload in payloads.items() if name not in files}
    need_space(directory.parent, sum(payload.size for payload in rest.values()))
    with ThreadPoolExecutor(1, "camshaft-checksums") as helper:
        files |= {name: write_file(directory / name, rest[name], helper) for name in sorted(rest)}
    return dict(sorted(files.items()))


def write_file(path: Path, payload: Payload, helper: Executor) -> Checksums:
    """Write a new file and wait until it is on the disk; return its checksums.

    The helper computes the checksums of the same memory while the file is written.
    """
    sums = RunningChecksums()
    with created(path) as file:
        for piece in payload.pieces():
            for begin in range(0, len(piece), CHUNK):
                chunk = piece[begin : begin + CHUNK]
                added = helper.submit(sums.add, chunk)
                try:
                    file.write(chunk)
                finally:
                    added.result()
        file.flush()
        os.fsync(file.fileno())
    return sums.result()


def need_space(directory: Path, size: int) -> None:
    """Check that the directory's file system has `size` bytes of free space.

    Raises:
        OSError: The file system has less free space: ENOSPC.
    """
    usage = disk_usage(directory)
    if usage.total and usage.free < size:  # some network file systems report 0
        raise OSError(
            errno.ENOSPC,
            f"{os.strerror(errno.ENOSPC)}: {size:,} bytes are needed in {directory}, and "
            f"{usage.free:,} are free",
        )


def foreign_files(directory: Path, known: Collection[str]) -> list[str]:
    """The names in a directory besides the known ones."""
    return sorted(path.name for path in directory.iterdir() if path.name not in known)


@contextmanager
def scratch(directory: Path) -> Generator[Path, None, None]:
    """A temporary directory inside `directory`; `sweep` removes those of killed processes."""
    temporary = beside(directory / "iteration-0", "tmp")
    temporary.mkdir()
    try:
        yield temporary
    finally:
        remove(temporary)


def vanish(path: Path) -> None:
    """Remove a directory: rename it first, so that its name is gone, then delete its files."""
    condemned = beside(path, "del")
    path.rename(condemned)
    remove(condemned)


def sweep(directory: Path) -> None:
    """Remove what a killed process had not finished writing or removing."""
    sweep_beside(directory, OWN)
