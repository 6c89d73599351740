"""One run's checkpoints in one directory: from the snapshot to the disk."""

from __future__ import annotations

import logging
import time
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ...engine import State, ranks
from ..common import scalars
from .background import BackgroundWriter
from .destination import Destination
from .directory import (
    DirectoryLock,
    Saved,
    UnreadableError,
    drop_unclaimed,
    is_claimed,
    saved_at,
    write_checkpoint,
    write_part,
)
from .format import (
    Checksums,
    Keep,
    Manifest,
    Payload,
    Table,
    installed_versions,
    needing_memory,
    rank_file,
)
from .frozen import FrozenWeights
from .resume import SavedRun
from .snapshot import Snapshot
from .staging import Staging, streamed
from .together import Saving, Taken, meet, temporary_path

logger = logging.getLogger("camshaft")

Result = TypeVar("Result")
Content = Snapshot | Taken | Mapping[str, Payload]
FAILED = "the last one failed"
GRACE = 4.0
"""Seconds for which a run that ends by an error waits for other ranks, which may be gone."""
SKIPPED, NO_MEMORY = -1, -2
"""In place of the digest of what a rank writes: nothing, by a claim or for want of memory."""


@dataclass
class CheckpointMemory:
    """What a handler remembers of a run, saved in its checkpoints."""

    broken: list[str] = field(default_factory=list)
    """Broken checkpoints: ignored by retention, never deleted."""
    warned: bool = False
    """True after the warning that a metric of a claim is missing."""
    override: list[str] = field(default_factory=list)
    reset: list[str] = field(default_factory=list)
    """Those of the last resumption: what `reset` names begins anew only once."""
    weights: dict[str, list[str]] = field(default_factory=dict)
    """By object, the weights that checkpoints hold, if frozen weights are left out."""

    buckets: dict[str, list[list[int]]] = field(default_factory=dict)
    """By model, the buckets in which more than two ranks add up its gradients under DDP."""

    def state_dict(self) -> dict[str, Any]:
        """The fields."""
        return vars(self).copy()

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """The saved fields; older checkpoints have fewer."""
        vars(self).update(saved)


class Recorder:
    """Writes one handler's checkpoints of one run, and holds the directory's lock.

    Every rank has a recorder; only the first rank's holds the lock.
    """

    def __init__(
        self,
        handler: object,
        to: Destination,
        spared: Path | None = None,
        *,
        together: bool = False,
    ) -> None:
        """Write nothing yet.

        Args:
            handler: Whose checkpoints these are.
            to: Where they are written, and how.
            spared: A checkpoint that is never dropped.
            together: True if each rank writes files of its own, not the first one all.
        """
        self._together = together
        self.handler = handler
        self.keep = to.keep
        self.directory = Path(to.directory).absolute()  # the script may change its directory
        self.spared = spared and spared.resolve()
        self.frozen: FrozenWeights | None = None
        """The frozen weights, if saves leave them out."""
        self._staging = Staging() if to.background else None
        self._writer = BackgroundWriter(to.background, to.retries, to.on_failure)
        self._newest: Saved | None = None
        self._why: tuple[int, str] = (0, "")
        """The iteration of the newest save, and its reasons."""
        self._lock = DirectoryLock(self.directory)
        self._is_open = False
        self._session = ""
        """A random number that all ranks know, and what was made of it so far."""
        self._saves = 0
        self._given_up: float | None = None
        """Since when the run is over by an error, so that other ranks may be gone."""

    def open(self) -> None:
        """Make and lock the directory, and remove what a killed run had not finished."""
        if self._is_open:
            return
        with ranks.on_all_ranks(f"write to {self.directory}"):
            if ranks.rank() == 0:
                self._lock.acquire()
            self._is_open = True
        if self._together and ranks.world_size() > 1:
            self._session = meet(self.directory)

    def go_on_from(self, path: Path) -> None:
        """Let the next save take the place of this checkpoint, if it is of the same iteration."""
        path = path.absolute()
        if path.parent == self.directory and path.resolve() != self.spared:
            self._newest = saved_at(path)
            self._why = (self._newest.manifest.iteration, self._newest.manifest.reason)

    def prepare(self, state: State[Any, Any], *, of_all: bool) -> list[str]:
        """Why to save at this commit point; empty if the handler was not asked.

        With `of_all`, `state.save("why")` without `by=` also means this handler.
        """
        meant = [self.handler, None] if of_all else [self.handler]
        asked = [why for why, by in state.control.saves if any(by is each for each in meant)]
        if asked:
            self.open()
            self._warn_of_missing(state)
        return asked

    def record(
        self,
        state: State[Any, Any],
        make: Callable[[], Content],
        reasons: list[str],
        *,
        only_claimed: bool = False,
        broken: Collection[str] = (),
    ) -> None:
        """Copy what `make` gives, write that, and drop the checkpoints that no claim keeps.

        Ranks that write together all call this, and `make` gives what is their own. The run
        may change when this returns; the next call or `wait` raises an error in writing. A save of
        the iteration of the save before takes its place, with the reasons of both. With
        `only_claimed`, nothing is written that no claim would keep. `broken` checkpoints are
        ignored.
        """
        iteration, earlier = self._why
        reason = _reasons(earlier if iteration == state.iteration else "", reasons)
        self._why = (state.iteration, reason)
        manifest = _manifest(state, reason, self.keep)
        if self._together and ranks.world_size() > 1:
            self._record_together(make, manifest, only_claimed, broken)
            return
        self.wait()
        made = self.attempt(lambda: self._copied(make()))
        if made is not None:
            write = partial(self._write, *made, manifest, only_claimed, broken)
            self._writer.start(write, partial(self._ask_again, state))

    def attempt(self, task: Callable[[], Result]) -> Result | None:
        """What a part of a save gives; None if it failed and `on_failure` is `"warn"`."""
        return self._writer.attempt(task)

    def _record_together(
        self,
        make: Callable[[], Content],
        manifest: Manifest,
        only_claimed: bool,
        broken: Collection[str],
    ) -> None:
        with ranks.on_all_ranks("take part in a checkpoint"):
            self.wait()
            content = self.attempt(make)
            own = SKIPPED if only_claimed and not self._is_claimed(manifest) else _digest(content)
        first = int(ranks.agreed(own))
        if first == SKIPPED:
            return
        with ranks.on_all_ranks("copy its part of a checkpoint"):
            if first != NO_MEMORY and own not in (first, NO_MEMORY):
                raise RuntimeError(
                    f"rank {ranks.rank()} saves other objects, or distributes them otherwise, than "
                    "rank 0: several ranks make one checkpoint only of the same objects on one mesh"
                )
            made = None if content is None else self.attempt(lambda: self._copied(content))
        if ranks.any_rank(made is None) or made is None:
            return
        snapshot, files = made
        table = content.table if isinstance(content, Taken) else {}
        self._saves += 1
        saving = Saving(
            self.directory,
            temporary_path(self.directory, manifest.iteration, self._session, self._saves),
            ranks.rank(),
            ranks.world_size(),
            self._writer.several_times,
            self._is_over,
        )
        task = partial(self._write_together, saving, snapshot, files, table, manifest, broken)
        self._writer.start_together(task, saving.tell_failure)
        if self._staging is None:
            with ranks.on_all_ranks("write its part of a checkpoint"):
                self.wait()

    def _write_together(
        self,
        saving: Saving,
        snapshot: Snapshot | None,
        files: Mapping[str, Payload],
        table: Table,
        manifest: Manifest,
        broken: Collection[str],
    ) -> None:
        """Write this rank's files; on rank 0 also the manifest: in the thread beside the run."""
        write = partial(self._write_own, saving, snapshot, files, table)
        if saving.rank > 0:
            saving.carry_out(write)
            return
        with suppress(OSError):  # it is told again with those of the other ranks
            saving.carry_out(write)
        self._newest = saved = saving.finish(manifest, self._newest)
        self._drop(saved, broken)

    def _write_own(
        self,
        saving: Saving,
        snapshot: Snapshot | None,
        files: Mapping[str, Payload],
        table: Table,
    ) -> dict[str, Checksums]:
        if saving.rank == 0:
            self._lock.renew()
        if snapshot is not None:
            refuse_unreadable(snapshot)
        return write_part(saving.temporary, files, table, saving.rank)

    def _is_claimed(self, manifest: Manifest) -> bool:
        return ranks.rank() > 0 or is_claimed(self.directory, self.keep, manifest)

    def _is_over(self) -> bool:
        """True if a rank that is silent is no longer waited for."""
        return self._given_up is not None and time.monotonic() - self._given_up > GRACE

    def _copied(self, content: Content) -> tuple[Snapshot | None, Mapping[str, Payload]]:
        """A snapshot, if the content is one, and the files to write."""
        if isinstance(content, Taken):
            content = content.snapshot
        if not isinstance(content, Snapshot):
            return None, content
        with needing_memory("copy the run"):
            copied = streamed if self._staging is None else self._staging.copy
            return content, copied(content)

    def _write(
        self,
        snapshot: Snapshot | None,
        files: Mapping[str, Payload],
        manifest: Manifest,
        only_claimed: bool,
        broken: Collection[str],
    ) -> None:
        """Write the files, then drop what no claim keeps: in the thread beside the run."""
        self._lock.renew()
        if only_claimed and not is_claimed(self.directory, self.keep, manifest):
            return
        if snapshot is not None:
            refuse_unreadable(snapshot)
        self._newest = saved = write_checkpoint(self.directory, files, manifest, self._newest)
        self._drop(saved, broken)

    def _drop(self, saved: Saved, broken: Collection[str]) -> None:
        logger.info("saved %s (%s)", saved.path, saved.manifest.reason)
        try:
            drop_unclaimed(self.directory, self.keep, broken, self.spared)
        except OSError as error:  # the save itself has not failed
            logger.warning("older checkpoints stay in %s: %s", self.directory, error)

    def _ask_again(self, state: State[Any, Any]) -> None:
        """Ask for another save, so that the next commit point raises the error of this one."""
        if ranks.world_size() == 1:  # several ranks must be asked together, so at the next save
            state.save(FAILED, by=self.handler)

    def wait(self) -> None:
        """Wait until the last save is on the disk."""
        self._writer.wait()

    def close(self, state: State[Any, Any]) -> None:
        """Wait until the last save is on the disk, and release the directory."""
        together = ranks.on_all_ranks("write its last checkpoint")
        with nullcontext() if state.error is not None else together:  # ranks that fail do not meet
            self._is_open = False
            if state.error is not None:
                self._given_up = time.monotonic()
            try:
                self._writer.close(self._lock.release)
            finally:  # the error is raised here, so the next commit point need not raise it
                saves = state.control.saves
                saves[:] = [each for each in saves if each != (FAILED, self.handler)]

    def _warn_of_missing(self, state: State[Any, Any]) -> None:
        """Warn once a run if a claim goes by a metric that is not there."""
        if state.epoch == 1 and state.control.in_epoch:  # the epoch's end may produce it
            return
        numbers = scalars(state.metrics)
        missing = sorted({best.metric for best in self.keep.bests} - numbers.keys())
        if missing and not (memory := state.recall(self.handler, CheckpointMemory)).warned:
            memory.warned = True
            logger.warning(
                "%r goes by %s, which no handler has produced so far; the metrics that are "
                "numbers are %s. A checkpoint without it is never best",
                self.keep,
                ", ".join(map(repr, missing)),
                ", ".join(map(repr, numbers)) or "none",
            )


def refuse_unreadable(snapshot: Snapshot) -> None:
    """Read the values of a snapshot as a resume does; of the numbers of its tensors only a few.

    Raises:
        UnreadableError: No run could be resumed from it.
    """
    own = rank_file(ranks.rank())
    part = snapshot.others.get(f"{own}.json")
    try:
        if part is not None:
            tensors = ChainMap(dict(snapshot.tensors.get(own, {})), dict(snapshot.shared))
            SavedRun.of_part(part, tensors)
        elif snapshot.tree is not None and snapshot.tree["run"]:
            SavedRun.of(snapshot.tree, snapshot.tensors)
    except ValueError as error:
        raise UnreadableError(f"no run could be resumed from this checkpoint: {error}") from error


def _digest(content: Content | None) -> int:
    if content is None:
        return NO_MEMORY
    return content.digest if isinstance(content, Taken) else 0


def _reasons(text: str, reasons: list[str]) -> str:
    """A text of reasons, with those added that it does not hold yet."""
    for reason in reasons:
        if f", {reason}, " not in f", {text}, ":
            text = f"{text}, {reason}" if text else reason
    return text


def _manifest(state: State[Any, Any], reason: str, keep: Keep) -> Manifest:
    # Claims name metrics by text, and a manifest holds no other names.
    metrics = {name: n for name, n in scalars(state.metrics).items() if isinstance(name, str)}
    return Manifest(
        iteration=state.iteration,
        step=state.step,
        epoch=state.epoch - state.control.in_epoch,
        reason=reason,
        metrics=metrics,
        written={name: state.metrics.written(name) for name in metrics},
        keep=repr(keep),
        world_size=ranks.world_size(),
        versions=installed_versions(),
    )
