"""Whether a checkpoint is good: the sizes and checksums of its files, and the pieces of tensors.

A file is read on several threads, and what is read can also be kept. Functions raise
BrokenCheckpoint where a checkpoint is not good.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import zlib
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from ...files import regular, size_of
from ..format import (
    CHUNK,
    FROZEN,
    MANIFEST,
    PIECES,
    TENSORS,
    TREE,
    BrokenCheckpoint,
    Checksums,
    Pieces,
    TensorInfo,
    rank_file,
    reading,
    tensors_in,
)
from .contents import table_in

if TYPE_CHECKING:
    from .saved import Saved

logger: logging.Logger = logging.getLogger("camshaft")

PIECE = 2**20
"""The bytes that are read before they are summed: few enough for the processor's cache."""
MOST_VIEWS = 512
"""The most buffers that one read fills; operating systems allow about a thousand."""
MOST_THREADS = 4
"""The most threads that read: while one sums, others read, and disks serve several at once."""
SHOWN = 20
"""The most foreign files that a message names."""


def compare_sizes(saved: Saved) -> None:
    """Check that every file is there and has its size, which needs no reading."""
    if TREE not in saved.manifest.files:
        raise BrokenCheckpoint(f"{MANIFEST} does not list {TREE}", saved.path)
    for name, expected in saved.manifest.files.items():
        compare_size(saved.path, name, expected)


def compare_size(directory: Path, name: str, expected: Checksums) -> None:
    """Check that a file is there and has its size."""
    with reading(directory, name):
        size = size_of(directory / name)
        if size != expected.size:
            raise ValueError(f"has {size} bytes and should have {expected.size}")
        if len(expected.crc32) != -(-size // expected.chunk):
            raise ValueError(f"has {len(expected.crc32)} checksums, which do not fit its size")


def verify_files(saved: Saved, files: Iterable[str] | None = None) -> None:
    """Read every file, or only those named, and compare sizes and checksums."""
    if files is None:
        verify_portion(saved)
        check_pieces(saved)
        return
    compare_sizes(saved)
    for name in files:
        _compare_chunks(saved, name)
    _warn_of_foreign(saved)


def verify_objects(saved: Saved, files: Collection[str]) -> None:
    """Verify the files that hold the tensors of some objects; `files` are as in `state.json`."""
    if PIECES in saved.manifest.files:
        verify_files(saved, [PIECES])
    table = table_in(saved)
    ranks = Pieces({file: table[file] for file in files if file in table}).ranks
    holding = {f"{file}{each}{TENSORS}" for file in files for each in ("", FROZEN)}
    holding |= {f"{rank_file(rank)}{TENSORS}" for rank in ranks}
    verify_files(saved, [name for name in saved.manifest.files if name in holding])
    check_pieces(saved)


def problem_of(saved: Saved, *, thoroughly: bool = True) -> str | None:
    """Why a checkpoint is broken; None if it is whole.

    Args:
        saved: The checkpoint.
        thoroughly: True to read every file; otherwise only sizes are compared.
    """
    try:
        (verify_files if thoroughly else compare_sizes)(saved)
    except BrokenCheckpoint as error:
        return error.reason
    return None


def verify_portion(
    saved: Saved, number: int = 0, count: int = 1, into: Mapping[str, Places] | None = None
) -> None:
    """Compare the bytes of one of several equal portions of a checkpoint, by default of all of it.

    The portions divide the bytes of all files, in the order of the files, at the ends of chunks.
    With the first one, the sizes of all files are compared, too.

    Args:
        saved: The checkpoint.
        number: Which portion, from 0.
        count: How many there are.
        into: By file: where its bytes are to stay.
    """
    if number == 0:
        compare_sizes(saved)
    total, before = saved.manifest.size, 0
    for name, expected in saved.manifest.files.items():
        first, last = (
            min(len(expected.crc32), max(0, -(-(place - before) // expected.chunk)))
            for place in (total * number // count, total * (number + 1) // count)
        )
        before += expected.size
        if first < last:
            _compare_chunks(saved, name, first, last, (into or {}).get(name))
    if number == 0:
        _warn_of_foreign(saved)


def _warn_of_foreign(saved: Saved) -> None:
    if foreign := saved.foreign:
        more = f" ... ({len(foreign)} in all)" if len(foreign) > SHOWN else ""
        some = f"{foreign[:SHOWN]}{more}"
        logger.warning("%s holds files that no checkpoint has: %s", saved.path, some)


def _compare_chunks(
    saved: Saved, name: str, first: int = 0, last: int | None = None, into: Places | None = None
) -> None:
    expected = saved.manifest.files[name]
    last = len(expected.crc32) if last is None else last
    with reading(saved.path, name):
        chunk, times = expected.chunk, expected.chunk // CHUNK
        found = checksums_of(saved.path / name, first * times, last * times, into).folded(chunk)
        size = min(expected.size, last * chunk) - first * chunk
        if found != Checksums(size, expected.crc32[first:last]):
            raise ValueError(f"is damaged: its checksum is not the one in {MANIFEST}")


def check_pieces(saved: Saved, number: int = 0, count: int = 1) -> None:
    """Check that each rank's file holds the pieces that the table says; only headers are read.

    Only the files of the ranks `number`, `number + count` and so on are checked, by default all.
    """
    if not (table := table_in(saved)):
        return
    pieces = Pieces(table)
    for rank in pieces.ranks[number::count]:
        name = f"{rank_file(rank)}{TENSORS}"
        if name not in saved.manifest.files:
            raise BrokenCheckpoint(f"{PIECES} names {name}, which is not there", saved.path)
        with reading(saved.path, name):
            refuse_other_pieces(tensors_in(saved.path / name), pieces.infos(rank))


def refuse_other_pieces(found: Mapping[str, TensorInfo], meant: Mapping[str, TensorInfo]) -> None:
    """Refuse a rank's file in which one of its pieces is missing, or has another type or shape."""
    if odd := [each for each, info in meant.items() if found.get(each) != info]:
        raise ValueError(f"does not hold the pieces that {PIECES} names: {odd[:3]}")


class Places:
    """Memory for the bytes of a file: buffers that follow one another in the file."""

    def __init__(self, views: Sequence[memoryview]) -> None:
        self._views = [view for view in views if len(view)]
        self._begins = list(accumulate(map(len, self._views), initial=0))
        self.size: int = self._begins.pop()

    def between(self, begin: int, end: int) -> list[memoryview]:
        """The buffers for these bytes; if there are too many, only the first buffers."""
        first = bisect_right(self._begins, begin) - 1
        last = min(bisect_right(self._begins, end - 1), first + MOST_VIEWS)
        return [
            self._views[at][max(0, begin - self._begins[at]) : end - self._begins[at]]
            for at in range(first, last)
        ]


def has_checksums(path: Path, expected: Checksums) -> bool:
    """True if a file has these checksums.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no regular file.
    """
    return checksums_of(path).folded(expected.chunk) == expected


def checksums_of(
    path: Path, first: int = 0, last: int | None = None, into: Places | None = None
) -> Checksums:
    """The checksums of a whole file, or of its 16 MiB from `first` to before `last`, not folded.

    With `into`, all bytes are read into these buffers. Without it, holes in the file are not read.
    """
    with regular(path) as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size
        if into is not None and into.size != size:
            raise ValueError(f"has {size} bytes and should have {into.size}")
        begins = range(first * CHUNK, size if last is None else min(size, last * CHUNK), CHUNK)
        found = {} if into else dict.fromkeys(_holes(descriptor, size, begins), _zeros())
        rest = [begin for begin in begins if begin not in found]
        read = partial(_read, descriptor, size, into)
        threads = min(MOST_THREADS, _processors(), len(rest))
        if threads < 2:
            found |= zip(rest, map(read, rest), strict=True)
        else:
            with ThreadPoolExecutor(threads, "camshaft-reading") as pool:
                found |= zip(rest, pool.map(read, rest), strict=True)
    sums = [found[begin] for begin in begins]
    return Checksums(sum(size for size, _ in sums), [crc for _, crc in sums])


def _read(descriptor: int, size: int, into: Places | None, begin: int) -> tuple[int, int]:
    """Read one chunk; return its size and its checksum."""
    place, end, crc = begin, min(size, begin + CHUNK), 0
    scratch = memoryview(bytearray(0 if into else min(PIECE, end - begin)))
    while place < end:
        last = min(end, place + PIECE)
        views = into.between(place, last) if into else [scratch[: last - place]]
        if not (count := os.preadv(descriptor, views, place)):
            break  # somebody has cut the file meanwhile
        place += count
        for view in views:
            crc = zlib.crc32(view[:count], crc)
            count -= min(count, len(view))
    return place - begin, crc


def _processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _holes(descriptor: int, size: int, begins: Iterable[int]) -> Iterator[int]:
    """The chunks that are holes: a file of a few bytes on the disk can span terabytes."""
    data = -math.inf
    for begin in begins:
        data = data if data >= begin else _data_from(descriptor, begin)
        if begin + CHUNK <= min(size, data):
            yield begin


def _data_from(descriptor: int, place: int) -> float:
    """The first place from here on that is not in a hole."""
    try:
        return os.lseek(descriptor, place, os.SEEK_DATA)
    except AttributeError:  # Windows
        return place
    except OSError as error:
        return math.inf if error.errno == errno.ENXIO else place


@cache
def _zeros() -> tuple[int, int]:
    return CHUNK, zlib.crc32(bytes(CHUNK))
