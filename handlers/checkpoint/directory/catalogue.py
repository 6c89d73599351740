"""Finding checkpoints: the newest good one, the best one, or one by its path."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from ..format.errors import BrokenCheckpoint
from ..format.notation import keep_of
from ..format.retention import Best, best
from .saved import Saved, look_at, scan, verify

logger = logging.getLogger("camshaft")


class Checkpoints(list[Saved]):
    """The checkpoints of a directory, in the order of writing.

    What `latest` and `best` give is whole: all of it was read and compared with its checksums. A
    broken one is passed over, with a warning.
    """

    def __init__(self, directory: str | Path) -> None:
        found, broken = scan(Path(directory))
        super().__init__(found)
        self.directory = Path(directory)
        self.broken: dict[str, str] = broken
        """What looks like a checkpoint but is not whole, and why; a lookup adds what it finds."""

    def latest(self) -> Saved | None:
        """The newest good one; None if there is none at all.

        Raises:
            ValueError: There are some, but no good one.
        """
        return self._first_good(reversed(self))

    def best(self, metric: str, mode: Literal["min", "max"] | None = None) -> Saved | None:
        """The good one with the best value of a metric, by the rules of the claim `best(...)`.

        NaN is never best, of equal ones the earlier is, and one measurement counts once. None if
        there is no checkpoint at all.

        Args:
            metric: The name of a metric that was one number.
            mode: `"min"` if smaller is better, `"max"` if larger is; by default, as the run that
                wrote them has it in its `keep`.

        Raises:
            ValueError: There are some, but no good one, or none with that metric; or no run has
                said which mode is meant.
        """
        (claim,) = best(1, metric, mode or self._mode_of(metric)).bests
        return self.best_by(claim)

    def best_by(self, claim: Best) -> Saved | None:
        """The same by a claim."""
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
            with suppress(ValueError):  # written by hand, or by a later version
                for claim in keep_of(saved.manifest.keep).bests:
                    if claim.metric == metric:
                        return claim.mode
        if any(metric in saved.manifest.metrics for saved in self):
            raise ValueError(
                f"best({metric!r}): needs mode='min' or mode='max', since the run that wrote to "
                f"{self.directory} kept none by this metric"
            )
        return "min"  # nothing has it, which is told next

    def _first_good(self, order: Iterable[Saved]) -> Saved | None:
        for saved in order:
            try:
                verify(saved)
            except BrokenCheckpoint as error:
                self.broken[saved.path.name] = error.reason
                continue
            for name, reason in self.broken.items():
                logger.warning(
                    "the checkpoint %s is broken and passed over for %s: %s",
                    *(self.directory / name, saved.path.name, reason),
                )
            return saved
        if self.broken:
            listed = "".join(f"\n  {name}: {reason}" for name, reason in self.broken.items())
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


def named(path: Path) -> Saved:
    """The checkpoint at that path, verified; nothing else will do.

    Raises:
        FileNotFoundError: There is nothing.
        BrokenCheckpoint: It is damaged, or no checkpoint.
        ValueError: It is a whole directory of checkpoints.
    """
    if inside := scan(path)[0]:
        raise ValueError(
            f"resume={str(path)!r} is a directory of checkpoints; name one of them, such as "
            f"{str(inside[-1].path)!r}"
        )
    if not path.is_symlink() and not path.exists():
        raise FileNotFoundError(f"resume={str(path)!r} is no whole checkpoint: nothing is there")
    saved = look_at(path)
    verify(saved)
    return saved
