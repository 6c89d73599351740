"""The checkpoints of a run as they come, for a script that evaluates them."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from os.path import samestat
from pathlib import Path
from typing import Any, Protocol

from ....engine import ranks
from ...checkpoint import Checkpoints, Manifest, Saved
from ...common import scalars
from ...files import link_folder, locked, remove_path
from ..mirror import FollowedStore
from ..results import Found, Results, Which, as_json, asked_in

logger: logging.Logger = logging.getLogger("camshaft")

WHICH = ("asked", "every", "newest")
SOONEST = 0.02
"""The least seconds between two looks."""
QUIET = 60.0
"""Seconds without a checkpoint after which a line says what is waited for."""
ASKED = ", that a ValidateElsewhere of this name asks for; which='every' takes others too"
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:", re.ASCII)
"""Begins an address; a path has no such beginning, or is given as a `Path`."""


class Followable(Protocol):
    """A run that is followed, in its directory or in its store. Rank 0 alone asks it."""

    own: Path
    """Where the files of the checkpoint at hand are."""
    latest: float
    """The most seconds between two looks."""
    given: set[str]
    """The results of checkpoints that were given, until they are written."""
    there: int
    """How many checkpoints the last look has found."""

    def opened(self) -> AbstractContextManager[None]:
        """Within a `with` block, the run can be asked.

        Raises:
            BlockingIOError: Another script follows it under this name.
        """
        ...

    def look(self, which: Which) -> tuple[Found | None, bool]:
        """The next checkpoint to evaluate, if there is one; True if the run has completed."""
        ...

    def write(self, name: str, said: Mapping[str, Any]) -> bool:
        """Write a result of this name; False if there is one."""
        ...


@dataclass(frozen=True)
class Followed(Saved):
    """A checkpoint of a run that is followed; its files stay until the next one is asked for."""

    result: str = field(repr=False)
    """The name of its result."""
    run: Followable = field(repr=False)

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
                said = {"checkpoint": self.path.name, "metrics": as_json(scalars(metrics))}
                is_first = self.run.write(self.result, said)
                self.run.given.discard(self.result)
                if not is_first:
                    logger.warning("%s came too late: %s is there", self.path.name, self.result)
        return ranks.from_first(is_first)


def follow(
    directory: str | Path,
    *,
    name: str = "val",
    which: Which = "asked",
    idle: float = math.inf,
    options: Mapping[str, Any] | None = None,
) -> Iterator[Followed]:
    """The checkpoints of a run as they come, on any machine that sees its directory or its store.

    It ends when the run has completed, by the word of its `ValidateElsewhere`, and all is
    evaluated. A script that was killed is started again, and gets the checkpoints that have no
    result. The run is never locked, and need not have begun. While one script follows it, another
    one needs another `name`.

    The files of the checkpoint at hand stay, though the run may drop the checkpoint: they have a
    second name (a hard link). One that is dropped before that is skipped with a line in the log.
    From a store, they are fetched to a temporary directory, which all ranks have to see.

    Args:
        directory: That of the run's `Checkpoint`, or the address of its `Mirror`.
        name: Names the evaluation, as in `ValidateElsewhere("val")`.
        which: `"asked"` for those that the run wants evaluated under this name, in their order;
            `"every"` for all; `"newest"` for the newest of all, so that a slow script leaves out
            some. The last two need no `ValidateElsewhere`.
        idle: Seconds without a new checkpoint after which it ends too.
        options: Storage options, as for `Mirror`.

    Raises:
        BlockingIOError: Another script follows it under this name, in the same directory.
        StoreError: The store cannot be read at the start; later, it is asked again.
        TypeError: The name is no text, or there are options for a directory.
        ValueError: `which` or `idle` makes no sense, or fsspec knows no such address.

    >>> for saved in follow("runs/demo", idle=0):
    ...     model.load_state_dict(saved.state_dict("model"))
    ...     saved.write(engine.evaluate(loader).metrics)
    """
    if which not in WHICH:
        raise ValueError(f"follow(which={which!r}): needs one of {', '.join(map(repr, WHICH))}")
    if not idle >= 0:
        raise ValueError(f"follow(idle={idle!r}): needs seconds, from 0")
    if isinstance(directory, str) and ADDRESS.match(directory):
        return _follow(FollowedStore(directory, options or {}, name), which, idle)
    if options:
        raise TypeError(
            f"follow({str(directory)!r}, options=...): options are for a store, s3://..."
        )
    return _follow(FollowedDirectory(directory, name), which, idle)


def _follow(run: Followable, which: Which, idle: float) -> Iterator[Followed]:
    since, is_told = time.monotonic(), False
    with ExitStack() as stack:
        with ranks.on_all_ranks(f"follow {run}"):
            if ranks.rank() == 0:
                stack.enter_context(run.opened())
        while True:
            found: Found | None = None
            is_over = False
            with ranks.on_all_ranks(f"look for checkpoints in {run}"):
                if ranks.rank() == 0:
                    remove_path(run.own)
                    found, is_over = run.look(which)
                    run.given |= {found[-1]} if found else set()
            found, is_over, waited = ranks.from_first((found, is_over, time.monotonic() - since))
            if found is not None:
                yield Followed(*found, run)
                since, is_told = time.monotonic(), False
                continue
            if is_over or waited > idle:
                return
            if waited > QUIET and not is_told:
                is_told = True
                logger.warning(
                    "follow waits for a checkpoint in %s, where it has found %d%s",
                    *(run, run.there, ASKED * (which == "asked")),
                )
            time.sleep(min(run.latest, SOONEST + waited / 10))


class FollowedDirectory:
    """A run that is followed in its directory."""

    latest: float = 1.0

    def __init__(self, directory: str | Path, name: str) -> None:
        self._results = Results(directory, name)
        self._locks = ExitStack()
        self.given: set[str] = set()
        self.there: int = 0
        self.own: Path = self._results.folder / ".reading"

    def __str__(self) -> str:
        return str(self._results.directory)

    @contextmanager
    def opened(self) -> Generator[None]:
        """Within a `with` block, no other script can follow the run under this name."""
        self._lock()
        try:
            yield
        finally:
            remove_path(self.own)
            self._locks.close()

    def _lock(self) -> None:
        self._locks.close()
        self._results.make()
        self._is_still = self._locks.enter_context(locked(self._results.folder))

    def look(self, which: Which) -> tuple[Found | None, bool]:
        """The next checkpoint to evaluate, if there is one; True if the run has completed."""
        if not self._is_still():  # somebody has removed the directory: it is that of a new run
            self.given.clear()
            self._lock()
        is_over = self._results.is_completed  # read first: then `_next` sees all there is
        return self._next(which), is_over

    def _next(self, which: Which) -> Found | None:
        found = Checkpoints(self._results.directory)
        self.there = len(found)
        for saved in found[:-2:-1] if which == "newest" else found:
            if which == "asked" and self._results.name not in asked_in(saved.manifest):
                continue
            try:
                before = (saved.path / Manifest.FILE).stat()
                place = self._results.place(saved)
                if place.name in self.given or place.exists():
                    continue
                is_linked = link_folder(saved.path, linked := self.own / saved.path.name)
                if not samestat(before, (saved.path / Manifest.FILE).stat()):
                    continue  # it was saved again or given metrics: the next look takes it
                return (linked if is_linked else saved.path), saved.manifest, place.name
            except (FileNotFoundError, NotADirectoryError):
                logger.warning("skipped: %s was dropped before it could be read", saved.path)
        return None

    def write(self, name: str, said: Mapping[str, Any]) -> bool:
        """Write a result of this name; False if there is one."""
        return self._results.write(self._results.folder / name, **said)
