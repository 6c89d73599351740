"""Whether a checkpoint is whole: sizes, checksums, and the pieces of tensors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ....files import size_of
from ...format import (
    MANIFEST,
    PIECES,
    TENSORS,
    TREE,
    BrokenCheckpoint,
    Checksums,
    Shares,
    TensorInfo,
    UnreadCheckpoint,
    rank_file,
    reading,
    tensors_in,
)
from ..files import CHUNK, foreign_files
from .checkpoint_files import CheckpointFiles
from .checksums import Places, checksums_of
from .trees import table_in

logger = logging.getLogger("camshaft")

SHOWN = 20
"""The most foreign files that a message names."""


class BrokenPieces(BrokenCheckpoint):
    """A file has other pieces than the table says, or a part that another rank reads is damaged."""


def compare_sizes(saved: CheckpointFiles) -> None:
    """Check that every file is there and has its size, which needs no reading.

    Raises:
        BrokenCheckpoint: A file is missing, or has another size.
    """
    if TREE not in saved.manifest.files:
        raise BrokenCheckpoint(f"{MANIFEST} does not list {TREE}", saved.path)
    for name, expected in saved.manifest.files.items():
        with reading(saved.path, name):
            size = size_of(saved.path / name)
            if size != expected.size:
                raise ValueError(f"has {size} bytes and should have {expected.size}")
            if len(expected.crc32) != -(-size // CHUNK):
                raise ValueError(f"has {len(expected.crc32)} checksums, which do not fit its size")


def verify_files(
    saved: CheckpointFiles,
    files: Iterable[str] | None = None,
    places: Callable[[str], Places | None] = lambda name: None,
) -> None:
    """Read every file, or only those named, and compare sizes and checksums.

    Args:
        saved: The checkpoint.
        files: The files; by default all.
        places: Where the bytes of a file are to stay, if anywhere.

    Raises:
        BrokenCheckpoint: A file is missing, unreadable or damaged.
    """
    compare_sizes(saved)
    for name in saved.manifest.files if files is None else files:
        with reading(saved.path, name):
            found = checksums_of(saved.path / name, into=places(name))
            if found != saved.manifest.files[name]:
                raise ValueError(f"is damaged: its checksum is not the one in {MANIFEST}")
    if files is None:
        check_pieces(saved)
    tell_foreign(saved)


def tell_foreign(saved: CheckpointFiles) -> None:
    """Warn of files that do not belong to a checkpoint."""
    if foreign := foreign_files(saved.path, {MANIFEST, *saved.manifest.files}):
        more = f" ... ({len(foreign)} in all)" if len(foreign) > SHOWN else ""
        told = f"{foreign[:SHOWN]}{more}"
        logger.warning("%s holds files that no checkpoint has: %s", saved.path, told)


def verify_part(saved: CheckpointFiles, part: int, parts: int) -> None:
    """Do one of several equal parts of what `verify_files` does.

    The parts divide the bytes of all files, in the order of the files, at the ends of chunks.

    Raises:
        BrokenPieces: All bytes of this part are right, and a file does not hold its pieces.
        BrokenCheckpoint: A file is missing, unreadable or damaged.
    """
    if part == 0:
        compare_sizes(saved)
    total, before = saved.manifest.size, 0
    for name, expected in saved.manifest.files.items():
        first, last = (
            min(len(expected.crc32), max(0, -(-(place - before) // CHUNK)))
            for place in (total * part // parts, total * (part + 1) // parts)
        )
        before += expected.size
        if first < last:
            with reading(saved.path, name):
                _compare_chunks(saved.path / name, expected, first, last)
    try:
        check_pieces(saved, part, parts)
    except UnreadCheckpoint:
        raise
    except BrokenCheckpoint as error:
        raise BrokenPieces(error.reason, error.path) from error
    if part == 0:
        tell_foreign(saved)


def _compare_chunks(path: Path, expected: Checksums, first: int, last: int) -> None:
    is_end = last == len(expected.crc32)
    found = checksums_of(path, first, None if is_end else last)
    size = (expected.size if is_end else last * CHUNK) - first * CHUNK
    if found != Checksums(size, expected.crc32[first:last]):
        raise ValueError(f"is damaged: its checksum is not the one in {MANIFEST}")


def check_pieces(saved: CheckpointFiles, part: int = 0, parts: int = 1) -> None:
    """Check that each rank's file holds the pieces that the table says; only headers are read.

    With `part`, only the files of ranks `part`, `part + parts` and so on are checked.

    Raises:
        BrokenCheckpoint: A piece is missing, or has another type or shape.
    """
    shares = Shares(table_in(saved))
    for rank in shares.ranks[part::parts]:
        name = f"{rank_file(rank)}{TENSORS}"
        if name not in saved.manifest.files:
            raise BrokenCheckpoint(f"{PIECES} names {name}, which is not there", saved.path)
        with reading(saved.path, name):
            refuse_other_pieces(tensors_in(saved.path / name), shares.infos(rank))


def refuse_other_pieces(found: Mapping[str, TensorInfo], meant: Mapping[str, TensorInfo]) -> None:
    """Refuse a rank's file in which one of its pieces is missing, or has another type or shape."""
    if odd := [each for each, info in meant.items() if found.get(each) != info]:
        raise ValueError(f"does not hold the pieces that {PIECES} names: {odd[:3]}")
