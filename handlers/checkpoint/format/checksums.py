"""The checksums of files, and how a manifest of thousands of ranks has room for them.

Of so many files, a few checksums stand for a file of any size (folding), all are in a few objects,
and those of ranks are a list for each kind of file.
"""

from __future__ import annotations

import errno
import math
import os
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Any
from zlib import crc32

from ...files import regular
from .codec import rank_file
from .tensors import TENSORS

MANY = 1000
"""The most files for which the manifest has a line each, for people to read."""
CHUNK = 16 * 2**20
"""The bytes that have one checksum, unless a checkpoint is very large."""
COLUMN = "rank-*"
"""Stands for `rank_file` of each rank, in the manifest of many."""
PIECE = 2**20
"""The bytes that are read before they are summed: few enough for the processor's cache."""
MOST_VIEWS = 512
"""The most buffers that one read fills; operating systems allow about a thousand."""
MOST_THREADS = 4
"""The most threads that read: while one sums, others read, and disks serve several at once."""
MOST_CHECKSUMS = 2**15
"""The most checksums in a manifest: those of 512 GiB. With many files, one each and a quarter."""


@dataclass(frozen=True, slots=True)
class Checksums:
    """A file's size in bytes, and the CRC-32 of each 16 MiB of it.

    To fold them is to put the CRC-32 of each two neighbours in their place. So each damaged byte
    changes one of them, and a few can stand for a file of any size.
    """

    size: int
    crc32: list[int]

    @classmethod
    def of(
        cls, path: Path, first: int = 0, last: int | None = None, into: Places | None = None
    ) -> Checksums:
        """Those of a whole file, or of its 16 MiB from `first` to before `last`, not folded.

        It is read on several threads. With `into`, all bytes are read into these buffers. Without
        it, holes in the file are not read.

        Raises:
            OSError: The file cannot be read.
            ValueError: It is no regular file, or has another size than the buffers.
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
        return cls(sum(size for size, _ in sums), [crc for _, crc in sums])

    def fit(self, path: Path) -> bool:
        """True if a file has these checksums; for errors, see `of`."""
        return Checksums.of(path).folded(self.chunk) == self

    @property
    def chunk(self) -> int:
        """The bytes that have one checksum: 16 MiB, twice as many for each time of folding."""
        chunk = CHUNK
        while chunk * max(1, len(self.crc32)) < self.size:
            chunk *= 2
        return chunk

    def folded(self, chunk: int) -> Checksums:
        """The same with a checksum for each `chunk` bytes; a last one without a neighbour stays."""
        if len(self.crc32) < 2:
            return self
        sums = self.crc32
        for _ in range((chunk // self.chunk).bit_length() - 1):
            text, end = array("I", sums).tobytes(), len(sums) // 2 * 8
            sums = [crc32(text[at : at + 8]) for at in range(0, end, 8)] + sums[end // 4 :]
        return Checksums(self.size, sums)


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
            crc = crc32(view[:count], crc)
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
    return CHUNK, crc32(bytes(CHUNK))


def folded_together(files: Mapping[str, Checksums]) -> Mapping[str, Checksums]:
    """The checksums of all files, folded until a manifest has room for them."""
    chunk = least_chunk(sum(each.size for each in files.values()), len(files))
    most = _most_checksums(len(files))
    while sum(-(-each.size // chunk) for each in files.values()) > most:
        chunk *= 2
    folded = ((name, each.folded(chunk)) for name, each in files.items())
    return dict(folded) if len(files) <= MANY else ManyChecksums(folded)


def least_chunk(size: int, count: int) -> int:
    """The fewest bytes that one checksum stands for in a manifest of so many bytes and files."""
    chunk = CHUNK
    while size > chunk * _most_checksums(count):
        chunk *= 2
    return chunk


def _most_checksums(count: int) -> int:
    return max(MOST_CHECKSUMS, count + MOST_CHECKSUMS // 4)


class ManyChecksums(Mapping[str, Checksums]):
    """The checksums of the files of thousands of ranks, by name, in a few objects.

    Python's garbage collector looks at all objects of the process each time a quarter as many are
    new, while the training waits: two for each file would let it do so in each save.

    >>> files = ManyChecksums({"b": Checksums(3, [7]), "a": Checksums(0, [])}.items())
    >>> [*files], files["b"]
    (['b', 'a'], Checksums(size=3, crc32=[7]))
    """

    __slots__ = ("_ends", "_places", "_sizes", "_sums")

    def __init__(self, files: Iterable[tuple[str, Checksums]] = ()) -> None:
        self._places = dict[str, int]()
        self._sizes, self._sums = array("Q"), array("Q")
        self._ends = array("Q", [0])
        for name, each in files:
            self.add(name, each.size, each.crc32)

    def add(self, name: str, size: int, sums: Iterable[int]) -> None:
        """Add a file, or replace the one of this name."""
        self._places[name] = len(self._sizes)
        self._sizes.append(size)
        self._sums.extend(sums)
        self._ends.append(len(self._sums))

    def in_order(self) -> ManyChecksums:
        """The same, by names in their order."""
        self._places = {name: self._places[name] for name in sorted(self._places)}
        return self

    def __getitem__(self, name: str) -> Checksums:
        """The checksums of a file."""
        place = self._places[name]
        sums = self._sums[self._ends[place] : self._ends[place + 1]]
        return Checksums(self._sizes[place], sums.tolist())

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._places)

    def __len__(self) -> int:
        """How many files there are."""
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        """True for the name of a file."""
        return name in self._places


def in_columns(files: Mapping[str, Checksums], count: int) -> tuple[dict[str, str], dict[str, Any]]:
    """The files of ranks as a list for each kind, as JSON in the order of ranks; others by name."""
    columns, ranks = dict[str, str](), set[str]()
    for kind in (".json", TENSORS):
        names = [f"{rank_file(n)}{kind}" for n in range(min(count, len(files)))]
        texts = (_as_list(files[name]) if name in files else "null" for name in names)
        columns[kind] = f"[{','.join(texts)}]"
        ranks.update(names)
    return columns, {name: asdict(files[name]) for name in sorted({*files}.difference(ranks))}


def _as_list(sums: Checksums) -> str:
    return f"[{','.join(map(str, (sums.size, *sums.crc32)))}]"


def of_columns(tree: Mapping[str, Any]) -> Mapping[str, Checksums]:
    """What `in_columns` has put into lists, in few objects."""
    files = ManyChecksums()
    for name, each in tree.items():
        if name.startswith(COLUMN):
            kind = name.removeprefix(COLUMN)
            for number, own in enumerate(each):
                if own:
                    files.add(f"{rank_file(number)}{kind}", own[0], own[1:])
        else:
            files.add(name, each["size"], each["crc32"])
    return files
