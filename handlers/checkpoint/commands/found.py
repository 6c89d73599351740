"""The checkpoints that a command is about, with what is wrong with each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..directory.saved import MANIFEST, NAME, Saved, compare_sizes, look_at, scan, verify
from ..format.errors import BrokenCheckpoint


class NoCheckpointError(FileNotFoundError):
    """There is no checkpoint at all."""


@dataclass(frozen=True)
class Found:
    """What is at a path, and what is wrong with it."""

    path: Path
    saved: Saved | None
    """None if not even the manifest can be read."""
    problem: str | None
    """Why it is broken; None if it is whole."""


def is_checkpoint(path: Path) -> bool:
    """True if the path is that of one checkpoint, rather than of a directory of some."""
    return (path / MANIFEST).exists() or (
        path.is_dir() and NAME.fullmatch(path.resolve().name) is not None
    )


def look(path: Path, *, thoroughly: bool) -> list[Found]:
    """The checkpoints of a directory in the order of writing, broken ones first; or that one.

    Args:
        path: The directory or the checkpoint.
        thoroughly: True to read every file; otherwise only their sizes are compared.

    Raises:
        NoCheckpointError: There is no checkpoint.
    """
    if is_checkpoint(path):
        return [_look_at_one(path, thoroughly)]
    whole, broken = scan(path)
    if not whole and not broken:
        what = "holds no checkpoint" if path.is_dir() else "is no directory"
        raise NoCheckpointError(f"{path} {what}")
    found = [Found(path / name, None, problem) for name, problem in broken.items()]
    found += [_examine(saved, thoroughly) for saved in whole]
    # A run that goes on may have dropped one meanwhile, which goes at once and whole.
    return [each for each in found if each.problem is None or each.path.exists()]


def _look_at_one(path: Path, thoroughly: bool) -> Found:
    try:
        return _examine(look_at(path), thoroughly)
    except BrokenCheckpoint as error:
        return Found(path, None, error.reason)


def _examine(saved: Saved, thoroughly: bool) -> Found:
    try:
        (verify if thoroughly else compare_sizes)(saved)
    except BrokenCheckpoint as error:
        return Found(saved.path, saved, error.reason)
    return Found(saved.path, saved, None)
