"""Reading what was written, before it counts as saved: by the rules of every later reader."""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..format import (
    LARGEST_COUNT,
    MANIFEST,
    TENSORS,
    TREE,
    BrokenCheckpoint,
    Manifest,
    TensorInfo,
    reading,
    tensors_in,
)
from .contents import CheckpointFiles, compare_sizes, refuse_other_pieces, tree_at, tree_in
from .saved import Saved, saved_at, scan

TREE_OF_RANK = re.compile(r"rank-\d{5,}\.json", re.ASCII)


class UnreadableError(OSError):
    """A checkpoint was written and cannot be read; another attempt would end in the same way."""


def read_back(directory: Path, names: Collection[str], meant: Mapping[str, TensorInfo]) -> None:
    """Read the files that a rank has written, all of them but the bytes of their tensors.

    Raises:
        MemoryError: There is not enough memory for reading.
        OSError: The disk does not give the files back.
        UnreadableError: No reader would take them, or they lack pieces that are `meant`.
    """
    written, held = CheckpointFiles(directory, Manifest()), dict[str, TensorInfo]()
    with _told_as_unreadable():
        for name in names:
            if name == TREE:
                tree_in(written)
            elif TREE_OF_RANK.fullmatch(name):
                tree_at(written, name)
            elif name.endswith(TENSORS):
                with reading(directory, name):
                    held |= tensors_in(directory / name)
        with reading(directory):
            refuse_other_pieces(held, meant)


def read_manifest_back(temporary: Path, place: Path, manifest: Manifest) -> None:
    """Read the manifest of a checkpoint that is to appear at `place`; all its files are there.

    Raises:
        MemoryError: There is not enough memory for reading.
        OSError: The disk does not give the manifest back.
        UnreadableError: No reader would take it.
    """
    with _told_as_unreadable():
        saved = saved_at(temporary, place.name)
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


def next_number(directory: Path, found: Collection[Saved] | None = None) -> int:
    """The number of the next checkpoint: one more than the largest of those `found` there.

    Raises:
        UnreadableError: There is no larger number.
    """
    found = scan(directory)[0] if found is None else found
    newest = max(found, key=lambda each: each.manifest.number, default=None)
    if newest is None:
        return 1
    if newest.manifest.number >= LARGEST_COUNT:
        raise UnreadableError(
            f"the checkpoint {newest.path} has the number {newest.manifest.number}, after which "
            "no save can be numbered, and no run has written it: move it out of the directory"
        )
    return newest.manifest.number + 1
