"""Finding checkpoints: the newest good one, the best one, or the one at a path."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from ..format import Best, BrokenCheckpoint, UnreadCheckpoint, best, keep_of
from .contents import verify_files
from .saved import Saved, saved_at, scan

logger = logging.getLogger("camshaft")

SHOWN = 20
"""The most broken checkpoints that a message names; a directory may hold thousands."""


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
            names = sorted({name for saved in self for name in saved.manifest.metrics})
            raise ValueError(
                f"no checkpoint in {self.directory} has the metric {claim.metric!r}; they have: "
                f"{', '.join(map(repr, names)) or 'none'}"
            )
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
