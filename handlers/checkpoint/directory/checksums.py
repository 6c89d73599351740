"""The checksums of files: of bytes that are written, and of a file that is read on several threads.

What is read can also be kept.
"""

from __future__ import annotations

import errno
import math
import os
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import accumulate
from pathlib import Path

from ...files import regular
from ..format import Checksums

CHUNK = 16 * 2**20
"""The bytes that have one checksum."""
PIECE = 2**20
"""The bytes that are read before they are summed: few enough for the processor's cache."""
MOST_VIEWS = 512
"""The most buffers that one read fills; operating systems allow about a thousand."""
MOST_THREADS = 4
"""The most threads that read: while one sums, others read, and disks serve several at once."""


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


class Places:
    """Memory for the bytes of a file: buffers that follow one another in the file."""

    def __init__(self, views: Sequence[memoryview]) -> None:
        self._views = [view for view in views if len(view)]
        self._begins = list(accumulate(map(len, self._views), initial=0))
        self.size = self._begins.pop()

    def between(self, begin: int, end: int) -> list[memoryview]:
        """The buffers for these bytes; if there are too many, those for the first of the bytes."""
        first = bisect_right(self._begins, begin) - 1
        last = min(bisect_right(self._begins, end - 1), first + MOST_VIEWS)
        return [
            self._views[at][max(0, begin - self._begins[at]) : end - self._begins[at]]
            for at in range(first, last)
        ]


def checksums_of(
    path: Path, first: int = 0, last: int | None = None, into: Places | None = None
) -> Checksums:
    """The checksums of a whole file, or of its chunks from `first` to before `last`.

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
    for begin in begins:
        if begin + CHUNK <= size and _data_from(descriptor, begin) >= begin + CHUNK:
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
