"""The checkpoints of a run as they come, for a script that evaluates them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from os.path import samestat
from pathlib import Path
from typing import Any, Literal

from ....engine import ranks
from ...checkpoint import Checkpoints, Manifest, Saved
from ...common import scalars
from ...files import link_folder, locked, remove_path
from .results import Results, as_json

logger: logging.Logger = logging.getLogger("camshaft")

Which = Literal["asked", "every", "newest"]
WHICH = ("asked", "every", "newest")
SOONEST, LATEST = 0.02, 1.0
"""The least and the most seconds between two looks at the directory."""
QUIET = 60.0
"""Seconds without a checkpoint after which a line says what is waited for."""
ASKED = ", which a ValidateElsewhere({0!r}) asks for; which='every' takes others too"


@dataclass(frozen=True)
class Followed(Saved):
    """A checkpoint of a run that is followed; its files stay until the next one is asked for."""

    place: Path = field(default=Path(), repr=False)
    """Where its result is written."""

    def write(self, metrics: Mapping[str, Any]) -> bool:
        """Write the result beside the checkpoints; of several ranks, rank 0 writes it.

        It is in one small file, which appears at once and is never changed.

        Args:
            metrics: Such as `engine.evaluate(loader).metrics`; those that are one number count.

        Returns:
            False if the run has gone on without it by now, or there is a result already.

        Raises:
            OSError: The file cannot be written.
            TypeError: The name of a metric is no text.
        """
        if odd := [name for name in metrics if not isinstance(name, str)]:
            raise TypeError(f"metrics: the name {odd[0]!r} is no text; give names such as 'loss'")
        is_first = False
        with ranks.on_all_ranks("write the result of an evaluation"):
            if ranks.rank() == 0:
                results = Results(self.place.parents[2], self.place.parent.name)
                said = {"checkpoint": self.path.name, "metrics": as_json(scalars(metrics))}
                is_first = results.write(self.place, **said)
                if not is_first:
                    logger.warning("%s came too late: %s is there", self.path.name, self.place)
        return ranks.from_first(is_first)


def follow(
    directory: str | Path, *, name: str = "val", which: Which = "asked", idle: float = math.inf
) -> Iterator[Followed]:
    """The checkpoints of a run as they come, on any machine that sees its directory.

    It ends when the run has completed, by the word of its `ValidateElsewhere`, and all is
    evaluated. A script that was killed is started again, and gets the checkpoints that have no
    result. The run is never locked, and need not have begun. While one script follows it, another
    one needs another `name`.

    The files of the checkpoint at hand stay, though the run may drop the checkpoint: they have a
    second name (a hard link). One that is dropped before that is skipped with a line in the log.

    Args:
        directory: That of the run's `Checkpoint`.
        name: Names the evaluation, as in `ValidateElsewhere("val")`.
        which: `"asked"` for those that the run wants evaluated under this name, in their order;
            `"every"` for all; `"newest"` for the newest of all, so that a slow script leaves out
            some. The last two need no `ValidateElsewhere`.
        idle: Seconds without a new checkpoint after which it ends too.

    Raises:
        BlockingIOError: Another script follows it under this name.
        TypeError: The name is no text.
        ValueError: `which` or `idle` makes no sense.

    >>> for saved in follow("runs/demo", idle=0):
    ...     model.load_state_dict(saved.state_dict("model"))
    ...     saved.write(engine.evaluate(loader).metrics)
    """
    if which not in WHICH:
        raise ValueError(f"follow(which={which!r}): needs one of {', '.join(map(repr, WHICH))}")
    if not idle >= 0:
        raise ValueError(f"follow(idle={idle!r}): needs seconds, from 0")
    return _follow(Results(directory, name), which, idle)


def _follow(results: Results, which: Which, idle: float) -> Iterator[Followed]:
    own = results.folder / ".reading"
    seen, since, is_told = set[Path](), time.monotonic(), False
    with ExitStack() as stack:
        with ranks.on_all_ranks(f"follow {results.directory}"):
            if ranks.rank() == 0:
                results.make()
                stack.enter_context(locked(results.folder))
                stack.callback(remove_path, own)
        while True:
            found: Followed | None = None
            is_over = False
            with ranks.on_all_ranks(f"look for checkpoints in {results.directory}"):
                if ranks.rank() == 0:
                    remove_path(own)
                    is_over = results.is_completed  # before the look, which then sees all there is
                    found = _next(results, which, seen, own)
            found, is_over, waited = ranks.from_first((found, is_over, time.monotonic() - since))
            if found is not None:
                yield found
                since, is_told = time.monotonic(), False
                continue
            if is_over or waited > idle:
                return
            if waited > QUIET and not is_told:
                is_told = True
                logger.warning(
                    "follow waits for a checkpoint in %s%s",
                    *(results.directory, ASKED.format(results.folder.name) * (which == "asked")),
                )
            time.sleep(min(LATEST, SOONEST + waited / 10))


def _next(results: Results, which: Which, seen: set[Path], own: Path) -> Followed | None:
    """The next checkpoint that has no result, and was not given yet."""
    found = Checkpoints(results.directory)
    for saved in found[:-2:-1] if which == "newest" else found:
        if which == "asked" and results.reason not in saved.manifest.reason.split(", "):
            continue
        try:
            before = (saved.path / Manifest.FILE).stat()
            place = results.place(saved)
            if place in seen or place.exists():
                continue
            is_linked = link_folder(saved.path, linked := own / saved.path.name)
            if not samestat(before, (saved.path / Manifest.FILE).stat()):
                continue  # it was saved again meanwhile, or given metrics: the next look takes it
            seen.add(place)
            return Followed(linked if is_linked else saved.path, saved.manifest, place)
        except (FileNotFoundError, NotADirectoryError):
            logger.warning("skipped: %s was dropped before it could be read", saved.path)
    return None
