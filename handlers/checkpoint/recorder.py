"""One run's checkpoints in one directory: from the copy in memory to the disk."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...engine import ranks
from ...engine.state.state import State
from ..common import scalars
from .background import Writer
from .directory.files import make_directory, sweep
from .directory.lock import locked
from .directory.store import is_claimed, prune, write
from .format.manifest import Manifest
from .format.retention import Keep
from .snapshot import Snapshot
from .staging import Staging, uncopied

if TYPE_CHECKING:
    from .checkpoint import Checkpoint
    from .export import Export

logger = logging.getLogger("camshaft")

FAILED = "the last one failed"
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


@dataclass
class Notes:
    """What a run remembers of its checkpoints."""

    broken: list[str] = field(default_factory=list)
    """Those that were passed over: they count for nothing and are left alone."""
    warned: bool = False
    """True once it was said that a metric is missing."""
    override: list[str] = field(default_factory=list)
    """What was accepted when the run last went on: a handler begins anew once, not each time."""


class Recorder:
    """Writes what one handler records of a run to its directory, kept for itself meanwhile.

    Every rank has one, and the first rank's writes.
    """

    def __init__(self, handler: Checkpoint | Export) -> None:
        """Do nothing yet."""
        self.handler = handler
        self.directory = Path(handler.directory).absolute()  # the script may go elsewhere
        self.spared: Path | None = None
        self._staging = Staging() if handler.background else None
        self._writer = Writer(handler.background, handler.retries, handler.failure)
        self._lock = ExitStack()
        self._is_open = False

    def open(self, spared: Path | None = None) -> None:
        """Keep the directory for this run, and clear up what a killed one had not finished.

        Args:
            spared: A checkpoint that stays, whatever the claims.

        Raises:
            BlockingIOError: Somebody else writes there.
            OSError: There can be no such directory.
        """
        if self._is_open:
            return
        with ranks.on_all_ranks(f"write to {self.directory}"):
            if ranks.rank() == 0:
                make_directory(self.directory)
                self._lock.enter_context(locked(self.directory))
                sweep(self.directory)
            self.spared = spared and spared.resolve()
            self._is_open = True

    def record(
        self,
        state: State[Any, Any],
        snapshot: Snapshot,
        reason: str,
        *,
        only_claimed: bool = False,
        broken: Collection[str] = (),
    ) -> None:
        """Copy a snapshot and write the copy, then drop what nobody claims.

        What it was taken from may change when this returns. That it could not be written is
        raised by `wait`.

        Args:
            state: The run, at a commit point.
            snapshot: What to write.
            reason: Why, for the manifest.
            only_claimed: True to write nothing if no claim would keep it.
            broken: Names in the directory that count for nothing.
        """
        self.wait()
        files = uncopied(snapshot) if self._staging is None else self._staging.take(snapshot)
        directory, keep, spared = self.directory, self.handler.keep, self.spared
        # Claims go by names that are text, and a manifest holds no others.
        metrics = {n: each for n, each in scalars(state.metrics).items() if isinstance(n, str)}
        manifest = Manifest.about(state, reason, metrics, keep=repr(keep))

        def save() -> None:
            if only_claimed and not is_claimed(directory, keep, manifest):
                return
            saved = write(directory, files, manifest)
            logger.info("saved %s (%s)", saved.path, manifest.reason)
            try:
                prune(directory, keep, broken, spared)
            except OSError as error:  # what is wanted is written, so that is no failure
                logger.warning("older checkpoints stay in %s: %s", directory, error)

        def tell() -> None:
            if ranks.world_size() == 1:  # several ranks only meet in saves that all know of
                state.save(FAILED, by=self.handler)

        self._writer.start(save, tell)

    def wait(self) -> None:
        """Wait until what was recorded is on the disk.

        Raises:
            OSError: It could not be written.
        """
        self._writer.wait()

    def close(self, state: State[Any, Any]) -> None:
        """Wait as `wait` does, and let others have the directory.

        Where a rank has failed, others may be anywhere, so nothing is said to them.
        """
        together = ranks.on_all_ranks("write its last checkpoint")
        with nullcontext() if state.error is not None else together:
            self._is_open = False
            try:
                self._writer.close(self._lock.close)
            finally:  # raising it is telling it
                saves = state.control.saves
                saves[:] = [each for each in saves if each != (FAILED, self.handler)]


def asked(handler: Checkpoint | Export, state: State[Any, Any], *, of_all: bool) -> str:
    """Why a handler is to save at this commit point; nothing if it is not.

    Saves that are asked `of_all` are for those that write the whole run.
    """
    found = (each for each, by in state.control.saves if by is handler or (of_all and by is None))
    return ", ".join(dict.fromkeys(found))


def recorder(handler: Checkpoint | Export, state: State[Any, Any]) -> Recorder:
    """The recorder of a handler in a run."""
    return state.recall(handler, lambda: Recorder(handler), saved=False)


def warn_of_missing(handler: Checkpoint | Export, state: State[Any, Any]) -> None:
    """Say once a run that a claim goes by a metric that is not there."""
    if state.epoch == 1 and state.control.in_epoch:  # it may be of the epoch's end
        return
    numbers = scalars(state.metrics)
    missing = sorted({best.metric for best in handler.keep.bests} - numbers.keys())
    if missing and not (notes := state.recall(handler, Notes)).warned:
        notes.warned = True
        logger.warning(
            "%r goes by %s, which no handler has produced so far; the metrics that are numbers "
            "are %s. A checkpoint without it is never best",
            *(
                handler.keep,
                ", ".join(map(repr, missing)),
                ", ".join(map(repr, numbers)) or "none",
            ),
        )


def check(handler: Checkpoint | Export) -> None:
    """Refuse settings that cannot be meant.

    Raises:
        TypeError: `keep` is not made of claims, or `retries` is no whole number.
        ValueError: The directory is not on a file system, or another value is none there is.
        NotADirectoryError: The directory is a file.
    """
    if not isinstance(handler.keep, Keep):
        raise TypeError(
            f"keep={handler.keep!r}: needs latest(...), best(...), every(...), or some of them "
            "combined with |"
        )
    if not isinstance(handler.retries, int) or isinstance(handler.retries, bool):
        raise TypeError(f"retries={handler.retries!r}: needs a whole number")
    if handler.retries < 0:
        raise ValueError(f"retries={handler.retries}: needs a number that is not negative")
    if handler.failure not in ("raise", "warn"):
        raise ValueError(f"failure={handler.failure!r}: needs 'raise' or 'warn'")
    written = f"{type(handler).__name__}({str(handler.directory)!r})"
    if ADDRESS.match(str(handler.directory)):
        raise ValueError(
            f"{written}: needs a directory on a file system. That a checkpoint is whole rests on "
            "fsync and on renaming it at once, which object stores do not have. Write to a local "
            "disk or a mounted file system, and copy the checkpoints that are finished: they "
            "never change"
        )
    if Path(handler.directory).is_file():
        raise NotADirectoryError(f"{written} is a file; name a directory for checkpoints")
