"""What is at a path, for commands and reports: each checkpoint, whole or broken, and its claims."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...checkpoint import BrokenCheckpoint, Keep, Saved
from ...checkpoint.directory import Directory, checkpoints, is_checkpoint, saved_at, scan
from ...files import budget


class NoCheckpointError(FileNotFoundError):
    """A path holds no checkpoint."""


@dataclass(frozen=True)
class Finding:
    """A checkpoint, whole or broken."""

    path: Path
    saved: Saved | None
    """None if the manifest cannot be read."""
    problem: str | None
    """Why the checkpoint is broken; None if it is whole."""

    @property
    def written(self) -> float | None:
        """When it was saved, in seconds since 1970; None if it has just been removed.

        The manifest of an earlier version does not say; then it is the time of its directory.
        """
        if self.saved and self.saved.manifest.time:
            return self.saved.manifest.time
        try:
            return self.path.stat().st_mtime
        except OSError:
            return None


@dataclass(frozen=True)
class Claims:
    """The claims of the run that wrote the newest good checkpoint."""

    keep: Keep | None
    """None if the manifest's claims cannot be read."""
    kept: dict[int, list[str]]
    """The numbers of the kept checkpoints, with the claims on each."""
    names: list[str]
    """The names of the claims, such as `latest`."""

    @classmethod
    def of(cls, found: list[Finding]) -> Claims:
        """The claims in the newest good manifest, and what they keep of these checkpoints."""
        good = [each.saved.manifest for each in found if each.saved and each.problem is None]
        keep = None
        if good:
            with suppress(ValueError):
                keep = Keep.of(good[-1].keep)
        names = [text.partition("(")[0] for text in repr(keep).split(" | ")]
        return cls(keep, keep.kept(good) if keep else {}, names)

    def text(self, each: Finding) -> str:
        """The claims on one checkpoint, in short."""
        if self.keep is None or each.saved is None:
            return "unknown"
        kept = self.kept.get(each.saved.manifest.number)
        return "nothing" if kept is None else ", ".join(map(self._short, kept)) or "newest"

    def _short(self, claim: str) -> str:
        """The name of a claim, or all of it if another claim has the same name."""
        name = claim.partition("(")[0]
        return name if self.names.count(name) == 1 else claim


class Findings(list[Finding]):
    """What `look` finds at a path."""

    def __init__(self, found: Iterable[Finding], left_out: int = 0) -> None:
        super().__init__(found)
        self.left_out = left_out
        """The number of checkpoints with lower names that were not looked at."""

    @property
    def notes(self) -> list[str]:
        """A line if not all were looked at."""
        shown = budget.MOST_CHECKPOINTS
        return [f"shown: the last {shown} of {shown + self.left_out}"] if self.left_out else []


def saved_in(path: Path) -> Saved:
    """The checkpoint at a path, or the newest good one of a directory."""
    if is_checkpoint(path):
        return saved_at(path)
    look(path, thoroughly=False)  # raises if the directory holds no checkpoint
    newest = checkpoints(path).latest()
    assert newest is not None
    return newest


def files_on_disk(found: Iterable[Saved]) -> dict[object, int]:
    """The files of some checkpoints, with their sizes; a file that several share is listed once."""
    files = dict[object, int]()
    for saved in found:
        for name, sums in saved.manifest.files.items():
            with suppress(OSError):
                status = (saved.path / name).lstat()
                files[(status.st_dev, status.st_ino)] = sums.size
    return files


def look(path: Path, *, thoroughly: bool) -> Findings:
    """The checkpoint at a path, or all in a directory in the order of writing, broken ones first.

    Args:
        path: The directory or the checkpoint.
        thoroughly: True to read every file; otherwise only sizes are compared.

    Raises:
        NoCheckpointError: The path holds no checkpoint.
    """
    if is_checkpoint(path):
        try:
            saved = saved_at(path)
        except BrokenCheckpoint as error:
            return Findings([Finding(path, None, error.reason)])
        return Findings([Finding(path, saved, saved.problem(thoroughly=thoroughly))])
    names = Directory(path).names
    whole, broken = scan(path, names[-budget.MOST_CHECKPOINTS :])
    if not whole and not broken:
        what = "holds no checkpoint" if path.is_dir() else "is no directory"
        raise NoCheckpointError(f"{path} {what}")
    found = [Finding(path / name, None, error.reason) for name, error in broken.items()]
    found += [Finding(saved.path, saved, saved.problem(thoroughly=thoroughly)) for saved in whole]
    # A run that is under way may have dropped a checkpoint meanwhile.
    here = (each for each in found if each.problem is None or os.path.lexists(each.path))
    return Findings(here, max(0, len(names) - budget.MOST_CHECKPOINTS))
