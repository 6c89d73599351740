"""The checkpoints of a directory: the newest good one, the best one, as one rank or all choose it.

Importing this file imports no torch, which takes longer than looking at a directory.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, TypeVar

from ....engine import ranks
from ...files import budget, regular
from ..format import (
    LARGEST_COUNT,
    Best,
    BrokenCheckpoint,
    Keep,
    Manifest,
    UnreadableError,
    UnreadCheckpoint,
    best,
    reading,
)
from .saved import Saved
from .verify import check_pieces, verify_files, verify_portion

logger: logging.Logger = logging.getLogger("camshaft")

Choice = TypeVar("Choice", bound="Saved | None")
Verify = Callable[[Saved], None]
"""Raises BrokenCheckpoint if a checkpoint is not whole."""
NAME = re.compile(r"iteration-\d{10,}(\.\d+)?", re.ASCII)
"""The names of checkpoints in a directory of them."""
SHOWN = 20
"""The most broken checkpoints that a message names; a directory may hold thousands."""


def saved_at(path: Path) -> Saved:
    """The checkpoint at `path`; only its manifest is read."""
    with reading(path, Manifest.FILE):
        if path.is_symlink():
            raise BrokenCheckpoint("it is a link to a directory; name the directory itself", path)
        with regular(path / Manifest.FILE) as file:
            text = file.read(budget.LARGEST_MANIFEST + 1)
        try:
            if len(text) > budget.LARGEST_MANIFEST:
                raise ValueError(f"it has more than {budget.LARGEST_MANIFEST:,} bytes")
            manifest = Manifest.of_json(text)
        except UnreadCheckpoint:
            raise
        except ValueError as error:
            raise ValueError(f"cannot be used: {error}") from error
        name = path.name
        if NAME.fullmatch(name) and int(name[10:].split(".")[0]) != manifest.iteration:
            raise ValueError(f"is of iteration {manifest.iteration}: the directory was renamed")
    return Saved(path, manifest)


def is_checkpoint(path: Path) -> bool:
    """True if the path is one checkpoint, rather than a directory of checkpoints."""
    is_named = path.is_dir() and NAME.fullmatch(path.resolve().name) is not None
    return is_named or (path / Manifest.FILE).exists()


def names_in(directory: Path) -> list[str]:
    """The names of the checkpoints in a directory, in their order."""
    found = os.listdir(directory) if directory.is_dir() else []
    return sorted(filter(NAME.fullmatch, found))


def next_number(found: Collection[Saved]) -> int:
    """The number of the next checkpoint: one more than the largest of those `found`."""
    newest = max(found, key=lambda each: each.manifest.number, default=None)
    if newest is None:
        return 1
    if newest.manifest.number >= LARGEST_COUNT:
        raise UnreadableError(
            f"the checkpoint {newest.path} has the number {newest.manifest.number}, after which "
            "no save can be numbered, and no run has written it: move it out of the directory"
        )
    return newest.manifest.number + 1


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


class Checkpoints(list[Saved]):
    """The checkpoints of a directory, in the order of writing.

    `latest` and `best` read all files of a checkpoint and compare their checksums. They skip a
    broken checkpoint with a warning. They do not skip a checkpoint that the system could not read,
    because it may be whole: that is an error.
    """

    def __init__(self, directory: str | Path, verify: Verify = verify_files) -> None:
        found, broken = scan(Path(directory))
        super().__init__(found)
        self.directory: Path = Path(directory)
        self._verify = verify
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
        manifests = [saved.manifest for saved in self]
        ranked = claim.ranking(manifests)
        if self and not ranked:
            raise claim.unknown(self.directory, manifests)
        return self._first_good(numbered[each.number] for each in ranked)

    def _mode_of(self, metric: str) -> Literal["min", "max"]:
        for saved in reversed(self):
            with suppress(ValueError):  # claims of a later version
                for claim in Keep.of(saved.manifest.keep).bests:
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
        if self._unread:
            raise self._unread[max(self._unread)]
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


def find(place: Path, verify: Verify = verify_files, claim: Best | None = None) -> Saved | None:
    """The good checkpoint at a path; in a directory the newest, or the best by a claim; or None.

    Raises:
        BrokenCheckpoint: The one at the path is damaged.
        ValueError: All checkpoints in the directory are broken, or none has the claim's metric.
    """
    if is_checkpoint(place):
        saved = saved_at(place)
        verify(saved)
        return saved
    found = Checkpoints(place, verify)
    return found.latest() if claim is None else found.best_by(claim)


def verified_at(path: Path, verify: Verify = verify_files) -> Saved:
    """The checkpoint at a path, with all files verified."""
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


def chosen(choose: Callable[[Verify], Choice], alone: Verify = verify_files) -> Choice:
    """Let rank 0 choose a checkpoint among some that all ranks verify; its choice, on all ranks.

    To try a checkpoint takes one broadcast and one gather. Each rank reads a portion of the files.

    Args:
        choose: Called on rank 0 alone, with a function that verifies one checkpoint at a time.
        alone: How the only rank verifies.

    Raises:
        UnreadCheckpoint: A rank could not read a file: on all ranks, with its number and host.
        Exception: Any other error of `choose`, on all ranks.
    """
    if ranks.world_size() == 1:
        return choose(alone)
    found: Any = None
    with ranks.on_all_ranks("find a checkpoint"):
        if ranks.rank() == 0:
            ends: BrokenCheckpoint | None = None
            try:
                found = choose(_verify_together)
            except BrokenCheckpoint as error:
                ends = error
                raise
            finally:
                ranks.from_first((ends, found and found.path))
        else:
            while isinstance(heard := ranks.from_first(found), Path):
                _verify_own_portion(heard)
            ends, path = heard
            if ends is not None:
                raise ends
            found = path and saved_at(path)  # each rank reads the manifest itself
    return found  # type: ignore[no-any-return]


def _verify_together(saved: Saved) -> None:
    """On rank 0: let each rank verify its portion."""
    ranks.from_first(saved.path)
    if found := _verify_own_portion(saved.path):
        _, number, host, error = found
        by = f" (as rank {number} on {host} has read it)" if number else ""
        raise type(error)(f"{error.reason}{by}", saved.path)


def _verify_own_portion(path: Path) -> tuple[bool, int, str, BrokenCheckpoint] | None:
    """Verify this rank's portion; return the first damage that any rank has found, on rank 0.

    The damage is: whether all bytes of the portion are right, the rank, its host, and the error.
    Damaged bytes explain wrong pieces, so they come first.
    """
    found, bytes_are_right, rank = None, False, ranks.rank()
    try:
        with reading(path):
            saved = saved_at(path)
            verify_portion(saved, rank, ranks.world_size())
            bytes_are_right = True
            check_pieces(saved, rank, ranks.world_size())
    except BrokenCheckpoint as error:
        found = (bytes_are_right, rank, socket.gethostname(), type(error)(error.reason))
    damage = filter(None, ranks.gathered_at_first(found) or [])
    return min(damage, default=None, key=itemgetter(0, 1))
