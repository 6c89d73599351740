"""Whether a checkpoint is good: sizes, checksums, the pieces of tensors, what was just written."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ...files import size_of
from ..format import (
    FROZEN,
    MANIFEST,
    PIECES,
    TENSORS,
    TRAIN,
    TREE,
    BrokenCheckpoint,
    Checksums,
    Manifest,
    Shares,
    TensorInfo,
    UnreadableError,
    UnreadCheckpoint,
    rank_file,
    reading,
    tensors_in,
    tensors_in_order,
)
from .checksums import CHUNK, Places, checksums_of
from .contents import CheckpointFiles, manifest_at, table_in, tree_at, tree_in

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger("camshaft")

TREE_OF_RANK = re.compile(r"rank-\d{5,}\.json", re.ASCII)
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
    if files is None:
        verify_part(saved, 0, 1, places)
        return
    compare_sizes(saved)
    for name in files:
        with reading(saved.path, name):
            _compare_chunks(saved.path / name, saved.manifest.files[name])
    tell_foreign(saved)


def verify_objects(saved: CheckpointFiles, files: Collection[str]) -> None:
    """Verify the files that hold the tensors of some objects; `files` are as in `state.json`.

    Raises:
        BrokenCheckpoint: A file is missing, unreadable or damaged.
    """
    if PIECES in saved.manifest.files:
        verify_files(saved, [PIECES])
    table = table_in(saved)
    ranks = Shares({file: table[file] for file in files if file in table}).ranks
    holding = {f"{file}{each}{TENSORS}" for file in files for each in ("", FROZEN)}
    holding |= {f"{rank_file(rank)}{TENSORS}" for rank in ranks}
    verify_files(saved, [name for name in saved.manifest.files if name in holding])
    check_pieces(saved)


def problem_of(saved: CheckpointFiles, *, thoroughly: bool = True) -> str | None:
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


def tell_foreign(saved: CheckpointFiles) -> None:
    """Warn of files that do not belong to a checkpoint."""
    if foreign := saved.foreign:
        more = f" ... ({len(foreign)} in all)" if len(foreign) > SHOWN else ""
        told = f"{foreign[:SHOWN]}{more}"
        logger.warning("%s holds files that no checkpoint has: %s", saved.path, told)


def verify_part(
    saved: CheckpointFiles,
    part: int,
    parts: int,
    places: Callable[[str], Places | None] = lambda name: None,
) -> None:
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
                _compare_chunks(saved.path / name, expected, first, last, places(name))
    try:
        check_pieces(saved, part, parts)
    except UnreadCheckpoint:
        raise
    except BrokenCheckpoint as error:
        raise BrokenPieces(error.reason, error.path) from error
    if part == 0:
        tell_foreign(saved)


def _compare_chunks(
    path: Path,
    expected: Checksums,
    first: int = 0,
    last: int | None = None,
    places: Places | None = None,
) -> None:
    is_end = last in (None, len(expected.crc32))
    found = checksums_of(path, first, None if is_end else last, places)
    size = (expected.size if last is None or is_end else last * CHUNK) - first * CHUNK
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


def read_back(directory: Path, names: Collection[str], meant: Mapping[str, TensorInfo]) -> None:
    """Read the files that a rank has written, all of them but the bytes of their tensors.

    Raises:
        MemoryError: There is not enough memory for reading.
        OSError: The disk does not give the files back.
        UnreadableError: No reader would take them, or they lack pieces that are `meant`.
    """
    written, found = CheckpointFiles(directory, Manifest()), dict[str, TensorInfo]()
    with _told_as_unreadable():
        for name in names:
            if name == TREE:
                tree_in(written)
            elif TREE_OF_RANK.fullmatch(name):
                tree_at(written, name)
            elif name.endswith(TENSORS):
                with reading(directory, name):
                    found |= tensors_in(directory / name)
        with reading(directory):
            refuse_other_pieces(found, meant)


def read_manifest_back(temporary: Path, place: Path, manifest: Manifest) -> None:
    """Read the manifest of a checkpoint that is to appear at `place`; all its files are there.

    Raises:
        MemoryError: There is not enough memory for reading.
        OSError: The disk does not give the manifest back.
        UnreadableError: No reader would take it.
    """
    with _told_as_unreadable():
        saved = CheckpointFiles(temporary, manifest_at(temporary, place.name))
        if saved.manifest.to_json() != manifest.to_json():
            raise BrokenCheckpoint(f"{MANIFEST} says something else than what was written")
        compare_sizes(saved)


@contextmanager
def _told_as_unreadable() -> Generator[None, None, None]:
    try:
        yield
    except BrokenCheckpoint as error:
        if isinstance(error.__cause__, OSError | MemoryError):
            raise error.__cause__ from None
        raise UnreadableError(f"it could not be read again: {error.reason}") from error


class ReadOnce:
    """Verifies checkpoints, and keeps the tensors of the last good one, except modules' weights.

    Each tensor gets memory of its own, which an optimizer or a handler takes over. Weights are
    copied from their file into the module after all files are verified: the operating system still
    has the file in its cache, so this process needs no memory for them.
    """

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._path: Path | None = None
        self._tensors: dict[str, Tensor] | None = None

    def verify(self, saved: CheckpointFiles) -> None:
        """Read every file, and compare sizes and checksums, as `verify_files` does.

        Raises:
            BrokenCheckpoint: A file is missing, unreadable or damaged; nothing is kept.
        """
        self._path = self._tensors = None

        def places(name: str) -> Places | None:
            if name != f"{TRAIN}{TENSORS}" or (made := _memory_for(saved.path / name)) is None:
                return None
            self._tensors, found = made
            return found

        verify_files(saved, places=places)
        self._path = saved.path

    def tensors_of(self, saved: CheckpointFiles) -> dict[str, dict[str, Tensor]]:
        """The tensors in memory, by file and name; empty if another checkpoint is the last one."""
        if self._tensors is None or saved.path != self._path:
            return {}
        return {TRAIN: self._tensors}


def _memory_for(path: Path) -> tuple[dict[str, Tensor], Places] | None:
    """Memory for the header of a file and for each of its tensors.

    None for a file that cannot be read as a whole. The reader of single tensors then reports what
    is wrong with it, and needs no memory for the holes of a sparse file.
    """
    import torch

    try:
        header, infos = tensors_in_order(path)
        if path.lstat().st_blocks * 512 < sum(each.size for each in infos.values()):
            return None
        made = {
            name: torch.empty(each.shape, dtype=getattr(torch, each.dtype), device="cpu")
            for name, each in infos.items()
        }
        bodies = [each.reshape(-1).view(torch.uint8).numpy().data for each in made.values()]
    except (AttributeError, OSError, ValueError, MemoryError, RuntimeError):
        return None
    return made, Places([memoryview(bytearray(header)), *bodies])
