"""What is in a directory: its checkpoints, broken ones too; the newest good one, the best one.

Importing this file imports no torch, which takes longer than looking at a directory.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...files import budget
from ..format import (
    LARGEST_COUNT,
    MANIFEST,
    Best,
    BrokenCheckpoint,
    Keep,
    UnreadableError,
    UnreadCheckpoint,
    best,
    keep_of,
)
from .contents import NAME
from .saved import Saved, saved_at
from .verify import problem_of, verify_files

logger = logging.getLogger("camshaft")

SHOWN = 20
"""The most broken checkpoints that a message names; a directory may hold thousands."""


def names_in(directory: Path) -> list[str]:
    """The names of the checkpoints in a directory, in their order."""
    found = os.listdir(directory) if directory.is_dir() else []
    return sorted(filter(NAME.fullmatch, found))


def scan(
    directory: Path, names: Iterable[str] | None = None
) -> tuple[list[Saved], dict[str, BrokenCheckpoint]]:
    """The checkpoints in the order of writing; and the broken ones by name, with their errors.

    Only manifests are read, by default those of all checkpoints in the directory.
    """
    found: list[Saved] = []
    broken: dict[str, BrokenCheckpoint] = {}
    for name in names_in(directory) if names is None else names:
        try:
            found.append(saved_at(directory / name))
        except BrokenCheckpoint as error:
            broken[name] = error
    return sorted(found, key=lambda each: each.manifest.number), broken


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


class Checkpoints(list[Saved]):
    """The checkpoints of a directory, in the order of writing.

    `latest` and `best` read all files of a checkpoint and compare their checksums. They skip a
    broken checkpoint with a warning. They do not skip a checkpoint that the system could not read,
    because it may be whole: that is an error.
    """

    def __init__(
        self, directory: str | Path, verify: Callable[[Saved], None] = verify_files
    ) -> None:
        found, broken = scan(Path(directory))
        super().__init__(found)
        self.directory, self._verify = Path(directory), verify
        self._unread = {n: each for n, each in broken.items() if isinstance(each, UnreadCheckpoint)}
        self.broken: dict[str, str] = {name: error.reason for name, error in broken.items()}
        """The names of broken checkpoints, with the reasons; `latest` and `best` add to them."""

    def latest(self) -> Saved | None:
        """The newest good checkpoint; None if the directory holds none.

        Raises:
            UnreadCheckpoint: The system could not read it.
            ValueError: All checkpoints are broken.
        """
        return self._first_good(reversed(self))

    def best(self, metric: str, mode: Literal["min", "max"] | None = None) -> Saved | None:
        """The good checkpoint with the best value of a metric; None if the directory holds none.

        The rules are those of the claim `best(...)`: NaN is never best, of equal values the
        earlier is best, and one measurement counts once.

        Args:
            metric: The name of a metric that is one number.
            mode: `"min"` if smaller is better, `"max"` if larger is; by default the mode in the
                `keep` of the run that wrote the checkpoints.

        Raises:
            UnreadCheckpoint: The system could not read it.
            ValueError: All checkpoints are broken, none has the metric, or the mode is unknown.
        """
        (claim,) = best(1, metric, mode or self._mode_of(metric)).bests
        return self.best_by(claim)

    def best_by(self, claim: Best) -> Saved | None:
        """The good checkpoint that is best by a claim; see `best`."""
        numbered = {saved.manifest.number: saved for saved in self}
        ranked = claim.ranking([saved.manifest for saved in self])
        if self and not ranked:
            raise _no_metric(self.directory, claim, self)
        return self._first_good(numbered[each.number] for each in ranked)

    def _mode_of(self, metric: str) -> Literal["min", "max"]:
        for saved in reversed(self):
            with suppress(ValueError):  # claims of a later version
                for claim in keep_of(saved.manifest.keep).bests:
                    if claim.metric == metric:
                        return claim.mode
        if any(metric in saved.manifest.metrics for saved in self):
            raise ValueError(
                f"best({metric!r}): needs mode='min' or mode='max', since the run that wrote to "
                f"{self.directory} kept none by this metric"
            )
        return "min"  # no checkpoint has the metric, so best_by raises

    def _first_good(self, order: Iterable[Saved]) -> Saved | None:
        for saved in order:
            for name in sorted(self._unread, reverse=True):
                if name > saved.path.name:  # the checkpoint that could not be read may be newer
                    raise self._unread[name]
            try:
                self._verify(saved)
            except UnreadCheckpoint:
                raise
            except BrokenCheckpoint as error:
                self.broken[saved.path.name] = error.reason
                continue
            for name, reason in list(self.broken.items())[:SHOWN]:
                logger.warning(
                    "the checkpoint %s is broken and passed over for %s: %s",
                    *(self.directory / name, saved.path.name, reason),
                )
            if len(self.broken) > SHOWN:
                logger.warning("%d checkpoints in all are broken", len(self.broken))
            return saved
        if self.broken:
            some = list(self.broken.items())[:SHOWN]
            listed = "".join(f"\n  {name}: {reason}" for name, reason in some)
            if len(self.broken) > SHOWN:
                listed += f"\n  ... ({len(self.broken)} in all)"
            raise ValueError(
                f"no checkpoint in {self.directory} is good, and a run does not silently start "
                "anew; to start it, move them away or choose another directory:" + listed
            )
        return None


def checkpoints(directory: str | Path) -> Checkpoints:
    """The checkpoints in a directory, in the order of writing: a list with `latest` and `best`.

    >>> checkpoints("there/is/no/such/directory")
    []
    >>> checkpoints("there/is/no/such/directory").latest() is None
    True
    """
    return Checkpoints(directory)


def verified_at(path: Path, verify: Callable[[Saved], None] = verify_files) -> Saved:
    """The checkpoint at a path, with all files verified.

    Raises:
        FileNotFoundError: The path does not exist.
        BrokenCheckpoint: The checkpoint is damaged, or the path is no checkpoint.
        ValueError: The path is a directory of checkpoints.
    """
    if inside := scan(path)[0]:
        raise ValueError(
            f"resume={str(path)!r} is a directory of checkpoints; name one of them, such as "
            f"{str(inside[-1].path)!r}"
        )
    if not path.is_symlink() and not path.exists():
        raise FileNotFoundError(f"resume={str(path)!r} does not exist; name a checkpoint")
    saved = saved_at(path)
    verify(saved)
    return saved


def refuse_unknown_metrics(directory: Path, found: Collection[Saved], keep: Keep) -> None:
    """Refuse a misspelt metric: it would claim nothing, and all would be dropped.

    Raises:
        ValueError: There are checkpoints, and none has the metric of a claim.
    """
    known = {name for saved in found for name in saved.manifest.metrics}
    for claim in keep.bests:
        if found and claim.metric not in known:
            raise _no_metric(directory, claim, found)


def _no_metric(directory: Path, claim: Best, found: Iterable[Saved]) -> ValueError:
    known = sorted({name for saved in found for name in saved.manifest.metrics})
    return ValueError(
        f"no checkpoint in {directory} has the metric {claim.metric!r}; they have: "
        f"{', '.join(map(repr, known)) or 'none'}"
    )


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
        """When the manifest was written, in seconds; None if it has just been removed."""
        try:
            return (self.path / MANIFEST).stat().st_mtime
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
                keep = keep_of(good[-1].keep)
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


def is_checkpoint(path: Path) -> bool:
    """True if the path is one checkpoint, rather than a directory of checkpoints."""
    return (path / MANIFEST).exists() or (
        path.is_dir() and NAME.fullmatch(path.resolve().name) is not None
    )


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
        return Findings([Finding(path, saved, problem_of(saved, thoroughly=thoroughly))])
    names = names_in(path)
    whole, broken = scan(path, names[-budget.MOST_CHECKPOINTS :])
    if not whole and not broken:
        what = "holds no checkpoint" if path.is_dir() else "is no directory"
        raise NoCheckpointError(f"{path} {what}")
    found = [Finding(path / name, None, error.reason) for name, error in broken.items()]
    found += [
        Finding(saved.path, saved, problem_of(saved, thoroughly=thoroughly)) for saved in whole
    ]
    # A run that is under way may have dropped a checkpoint meanwhile.
    here = (each for each in found if each.problem is None or os.path.lexists(each.path))
    return Findings(here, max(0, len(names) - budget.MOST_CHECKPOINTS))
