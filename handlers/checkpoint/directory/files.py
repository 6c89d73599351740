"""The files of a directory of checkpoints: written durably, read back, removed."""

from __future__ import annotations

import errno
import os
import re
import zlib
from collections.abc import Generator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import disk_usage

from ...files import created, regular, shared, size_of, written_past_cache
from ...files import sweep as sweep_beside
from ..format import (
    CHUNK,
    TENSORS,
    TREE,
    BrokenCheckpoint,
    Checksums,
    Manifest,
    Payload,
    TensorInfo,
    UnreadableError,
    reading,
    tensors_in,
    tree_at,
    tree_in,
)
from .verify import refuse_other_pieces

SMALLEST = 2**20
"""The fewest bytes of a file that checkpoints share."""
TREE_OF_RANK = re.compile(r"rank-\d{5,}\.json", re.ASCII)
OWN = r"iteration-\d+(\.\d+)?|LATEST"
"""The names of what a run writes to its directory."""


class RunningChecksums:
    """The checksums of bytes that are added piece by piece."""

    def __init__(self) -> None:
        self.size: int = 0
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
    sums, is_direct = RunningChecksums(), True
    with created(path) as file:
        for piece in payload.pieces():
            for begin in range(0, len(piece), CHUNK):
                chunk = piece[begin : begin + CHUNK]
                added = helper.submit(sums.add, chunk)
                try:
                    if is_direct and len(chunk) == CHUNK:
                        taken = written_past_cache(file, chunk)
                        is_direct, chunk = taken == CHUNK, chunk[taken:]
                    file.write(chunk)
                finally:
                    added.result()
        file.flush()
        os.fsync(file.fileno())
    return sums.result()


def read_back(
    directory: Path, files: Mapping[str, Checksums], meant: Mapping[str, TensorInfo]
) -> None:
    """Read the files that a rank has written, all of them but the bytes of their tensors."""
    found = dict[str, TensorInfo]()
    with _as_unreadable():
        for name, sums in files.items():
            with reading(directory, name):
                if (size := size_of(directory / name)) != sums.size:
                    raise ValueError(f"has {size} bytes and should have {sums.size}")
            if name == TREE:
                tree_in(directory)
            elif TREE_OF_RANK.fullmatch(name):
                tree_at(directory, name)
            elif name.endswith(TENSORS):
                with reading(directory, name):
                    found |= tensors_in(directory / name)
        if meant:
            with reading(directory):
                refuse_other_pieces(found, meant)


def read_manifest_back(temporary: Path, manifest: Manifest, text: str, *, is_whole: bool) -> None:
    """Read the manifest of a checkpoint that is to appear.

    All files of a whole one are there; of another one, other hosts have some. Each rank has read
    its own files by then: see `read_back`.
    """
    with _as_unreadable(), reading(temporary, Manifest.FILE):
        with regular(temporary / Manifest.FILE) as file:
            if file.read(len(text) + 1) != text.encode():
                raise BrokenCheckpoint(f"{Manifest.FILE} says something else than what was written")
        Manifest.of_json(text)
        there = os.listdir(temporary) if is_whole else {TREE, *manifest.files}
        if missing := sorted({TREE, *manifest.files}.difference(there)):
            raise BrokenCheckpoint(f"{missing[:3]} are not there ({len(missing)} in all)")
        if TREE not in manifest.files:
            raise BrokenCheckpoint(f"{Manifest.FILE} does not list {TREE}")


@contextmanager
def _as_unreadable() -> Generator[None, None, None]:
    try:
        yield
    except BrokenCheckpoint as error:
        if isinstance(error.__cause__, OSError | MemoryError):
            raise error.__cause__ from None
        raise UnreadableError(f"it could not be read again: {error.reason}") from error


def need_space(directory: Path, size: int) -> None:
    """Check that the directory's file system has `size` bytes of free space."""
    usage = disk_usage(directory)
    if usage.total and usage.free < size:  # some network file systems report 0
        raise OSError(
            errno.ENOSPC,
            f"{os.strerror(errno.ENOSPC)}: {size:,} bytes are needed in {directory}, and "
            f"{usage.free:,} are free",
        )


def remove_share(directory: Path, number: int, count: int) -> None:
    """Remove one of several equal shares of the files in a directory, and it with the last of them.

    Which file is in which share depends on its name alone, so nobody waits for others. What another
    one leaves, because it was killed, is removed by `sweep_run`.
    """
    with suppress(OSError):
        for name in os.listdir(directory):
            if zlib.crc32(os.fsencode(name)) % count == number:
                os.unlink(directory / name)
        directory.rmdir()  # fails while there are files of others


def sweep_run(directory: Path) -> None:
    """Remove what a killed process had not finished writing or removing."""
    sweep_beside(directory, OWN)
