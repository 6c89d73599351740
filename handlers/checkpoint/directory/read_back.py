"""Reading what was written, before it counts as saved: by the rules of every later reader."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ..format import (
    LARGEST_COUNT,
    MANIFEST,
    TENSORS,
    BrokenCheckpoint,
    Manifest,
    reading,
    tensors_in,
)
from .contents import OF_RANK, compare_sizes, tree_in
from .saved import Saved, saved_at, scan


class UnreadableError(OSError):
    """A checkpoint was written and cannot be read; another attempt would end in the same way."""


def read_back(temporary: Path, place: Path, manifest: Manifest) -> None:
    """Read a checkpoint that is to appear at `place`, all of it but the bytes of its tensors.

    Raises:
        MemoryError: There is not enough memory for reading.
        OSError: The disk does not give the files back.
        UnreadableError: No reader would take them.
    """
    try:
        saved = saved_at(temporary, place.name)
        if saved.manifest.to_json() != manifest.to_json():
            raise BrokenCheckpoint(f"{MANIFEST} says something else than what was written")
        compare_sizes(saved)
        tree_in(saved)
        for name in saved.manifest.files:
            if name.endswith(TENSORS) and not OF_RANK.fullmatch(name):  # each rank has read its own
                with reading(temporary, name):
                    tensors_in(temporary / name)
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
