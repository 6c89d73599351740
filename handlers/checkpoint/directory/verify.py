"""Whether a checkpoint is good: the sizes and checksums of its files, and the pieces of tensors.

Functions raise BrokenCheckpoint where a checkpoint is not good.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from ...files import size_of
from ..format import (
    CHUNK,
    FROZEN,
    PIECES,
    TENSORS,
    TREE,
    BrokenCheckpoint,
    Checksums,
    Manifest,
    Pieces,
    Places,
    TensorInfo,
    rank_file,
    reading,
    tensors_in,
)
from .contents import table_in

if TYPE_CHECKING:
    from .saved import Saved

logger: logging.Logger = logging.getLogger("camshaft")

SHOWN = 20
"""The most foreign files that a message names."""


def compare_sizes(saved: Saved) -> None:
    """Check that every file is there and has its size, which needs no reading."""
    if TREE not in saved.manifest.files:
        raise BrokenCheckpoint(f"{Manifest.FILE} does not list {TREE}", saved.path)
    for name, expected in saved.manifest.files.items():
        with reading(saved.path, name):
            size = size_of(saved.path / name)
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


def verify_portion(
    saved: Saved, number: int = 0, count: int = 1, into: Mapping[str, Places] | None = None
) -> None:
    """Compare the bytes of one of several equal portions of a checkpoint, by default of all of it.

    The portions divide the bytes of all files, in the order of the files, at the ends of chunks.
    With the first one, the sizes of all files are compared, too. `into` are places, by file, where
    the bytes are to stay.
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


def foreign_in(saved: Saved) -> list[str]:
    """The names of files in the directory of a checkpoint that do not belong to it."""
    return sorted({*os.listdir(saved.path)}.difference(saved.manifest.files, [Manifest.FILE]))


def _warn_of_foreign(saved: Saved) -> None:
    if foreign := foreign_in(saved):
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
        path = saved.path / name
        found = Checksums.of(path, first * times, last * times, into).folded(chunk)
        size = min(expected.size, last * chunk) - first * chunk
        if found != Checksums(size, expected.crc32[first:last]):
            raise ValueError(f"is damaged: its checksum is not the one in {Manifest.FILE}")


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
