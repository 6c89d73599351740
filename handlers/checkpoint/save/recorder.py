"""The saves of one handler in one run: asked for, taken, copied, and written by a thread."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ....engine import State, ranks
from ...common import scalars
from ...files import remove_path, synchronise
from ..directory import (
    DirectoryLock,
    Remembered,
    Saved,
    commit,
    condemned,
    is_claimed,
    place_for,
    saved_at,
    telling_failures,
    unclaimed,
    write_part,
)
from ..format import (
    Checksums,
    Keep,
    Manifest,
    Payload,
    TensorInfo,
    UnreadableError,
    installed_versions,
    needing_memory,
)
from ..sharding import Layout
from ..weights import FrozenWeights
from .begin import OnFailure
from .read_back import ReadBack
from .snapshot import Snapshot, Staging, streamed
from .team import Team, check_same_weights

if TYPE_CHECKING:
    from ...cluster.local import Local, LocalRecorder
    from ..checkpoint import Checkpoint
    from ..export import Export

logger: logging.Logger = logging.getLogger("camshaft")

FIRST_WAIT = 1.0
"""Seconds before the first retry; each further wait is twice as long."""
Result = TypeVar("Result")
Task = Callable[[Exception | None], object]
FAILED = "the last one failed"
NOTHING = -1
"""The digest of a rank that writes nothing: no claim keeps it, or there is no memory for it."""


@dataclass
class CheckpointMemory:
    """The memory of a handler for one run, saved in its checkpoints."""

    broken: list[str] = field(default_factory=list)
    """Broken checkpoints: ignored by retention, never deleted."""
    warned: bool = False
    """True after the warning that a metric of a claim is missing."""
    override: list[str] = field(default_factory=list)
    reset: list[str] = field(default_factory=list)
    """The arguments of the last start: a name in `reset` takes effect only once."""
    weights: dict[str, list[str]] = field(default_factory=dict)
    """By object, the weights that checkpoints hold, if frozen weights are left out."""
    buckets: dict[str, list[list[int]]] = field(default_factory=dict)
    """By model, the buckets in which more than two ranks add up its gradients under DDP."""


class Recorder:
    """Writes one handler's checkpoints of one run, and holds the directory's lock.

    A save is taken and copied at a commit point. Then a thread writes this rank's part, reports
    to rank 0, and on rank 0 commits what all ranks have written. One process does the same as one
    of several ranks; it only sends no report.
    """

    def __init__(
        self, handler: Checkpoint | Export | Local, *, background: bool, is_export: bool = False
    ) -> None:
        """Write nothing yet.

        Args:
            handler: Whose checkpoints these are.
            background: False to write on the thread that trains.
            is_export: True if rank 0 writes all files, of saves that a claim keeps; else each rank
                writes its own.
        """
        self.handler = handler
        self.directory: Path = Path(
            handler.directory
        ).absolute()  # the script may change its directory
        self.frozen: FrozenWeights | None = None
        """The frozen weights, if saves leave them out."""
        self.read_back: ReadBack = ReadBack({})
        """What the script made, with which the first save is compared."""
        self.layout: Layout = Layout()
        """How tensors lie on the ranks, from save to save."""
        self.spared: Path | None = None
        """A checkpoint that is never dropped."""
        self.lineage: tuple[str, int] = ("", 0)
        """The name of the run and the count of its starts; see `Manifest.run`."""
        self.local: LocalRecorder | None = None
        """What writes to the disk of each host."""
        self._is_export = is_export
        self._takes_all = not is_export
        """True if `state.save("why")` is meant for this one too."""
        self._lock = DirectoryLock(self.directory)
        self._staging = Staging() if background else None
        self._writer = CheckpointWriter(background, handler.retries, handler.on_failure)
        self._team = self._make_team(is_export)
        self._remembered = Remembered(self.directory)
        self._newest: Saved | None = None
        self._why: tuple[int, str] = (0, "")
        """The iteration of the newest save, and its reasons."""
        self._is_open = False
        self._are_compared = False

    def open(self) -> None:
        """Make and lock the directory, and remove unfinished files of killed runs.

        On several ranks, rank 0 holds the lock.
        """
        if self._is_open:
            return
        with ranks.on_all_ranks(f"write to {self.directory}"):
            Manifest().refuse_large({}, self._team.size)
            if ranks.rank() == 0:
                self._lock.acquire()
            self._is_open = True
        self._team.meet()

    def _make_team(self, is_alone: bool) -> Team:
        return Team(self.directory, is_alone=is_alone)

    def go_on_from(self, path: Path) -> None:
        """Let the next save replace this checkpoint, if both are of the same iteration."""
        path = path.absolute()
        if path.parent == self.directory and path.resolve() != self.spared:
            self._newest = saved = saved_at(path)
            self._why = (saved.manifest.iteration, saved.manifest.reason)

    def prepare(self, state: State[Any, Any], name: str | None = None) -> list[str]:
        """The reasons to save at this commit point; empty if the handler was not asked.

        An export is of the object with this name. `state.save("why")` without `by=` asks for
        checkpoints and not for exports.

        Raises:
            ValueError: At the first save: ranks hold other weights, which are no shards of one.
        """
        meant = [self.handler, None] if self._takes_all else [self.handler]
        asked = [why for why, by in state.saves if any(by is each for each in meant)]
        if asked:
            self.open()
            _warn_of_missing(state, self.handler.keep, self.handler)
            if not self._are_compared:
                objects = state.engine.objects
                check_same_weights(objects if name is None else {name: objects[name]})
                self._are_compared = True
        return asked

    def record(
        self,
        state: State[Any, Any],
        make: Callable[[], Snapshot],
        reasons: list[str],
        broken: Collection[str] = (),
        exports: Collection[Future[None]] = (),
    ) -> None:
        """Copy what `make` gives, write the copy, and drop the checkpoints that no claim keeps.

        On ranks that write together, all ranks call this, and `make` gives the part of each. When
        this returns, the run may change; an error in writing is raised by the next call or by
        `wait`. A save of the same iteration as the save before replaces it, with the reasons of
        both. An export that no claim would keep is not written. Checkpoints that are `broken` are
        ignored. The checkpoint appears after these `exports`, or their failure.

        Raises:
            OSError: The save before could not be written, or memory has run out.
            RuntimeError: The ranks save different objects, or distribute them differently.
        """
        team, writer = self._team, self._writer
        iteration, earlier = self._why
        reason = _with_reasons(earlier if iteration == state.iteration else "", reasons)
        self._why = (state.iteration, reason)
        run, start = self.lineage
        manifest = replace(_manifest_of(state, reason, self.handler.keep), run=run, start=start)
        content: Snapshot | None = None
        with team.all("take part in a checkpoint"):
            writer.wait()
            if not self._is_export or writer.attempt(partial(self._is_claimed, manifest)):
                content = writer.attempt(make)
        own = NOTHING if content is None else content.digest
        first = team.of_first(own)
        if first == NOTHING:
            return
        with team.all("copy its part of a checkpoint"):
            if own not in (first, NOTHING):
                raise RuntimeError(
                    f"rank {team.rank} saves other objects, or distributes them otherwise, than "
                    "rank 0: several ranks make one checkpoint only of the same objects on one mesh"
                )
            files = None
            if content is not None:
                files = writer.attempt(partial(self._copied, content, manifest))
        if not team.all_have(files) or files is None or content is None:
            return
        temporary = team.temporary(state.iteration)
        write = partial(self._write, temporary, files, content.pieces, state.iteration)
        save = partial(self._save, temporary, write, manifest, broken, exports)
        is_beside = self._staging is not None
        with nullcontext() if is_beside else team.all("write its part of a checkpoint"):
            writer.start(save, partial(self._ask_again, state))

    @property
    def keep(self) -> Keep:
        """Which checkpoints are kept."""
        return self.handler.keep

    @property
    def under_way(self) -> Future[None] | None:
        """The save that is being written by a thread."""
        return self._writer.under_way

    def wait(self) -> None:
        """Wait until the last save is on the disk."""
        self._writer.wait()

    def close(self, state: State[Any, Any]) -> None:
        """Wait until the last save is on the disk, and release the directory."""
        together = ranks.on_all_ranks("write its last checkpoint")
        with nullcontext() if state.error is not None else together:  # ranks that fail do not meet
            self._is_open = False
            if state.error is not None:
                self._team.give_up()
            try:
                self._writer.close(self._lock.release)
            finally:  # close raises the error, so no commit point has to
                saves = state.saves
                saves[:] = [each for each in saves if each != (FAILED, self.handler)]

    def _copied(self, content: Snapshot, manifest: Manifest) -> Mapping[str, Payload]:
        """The files to write; in the background they are a copy, and the run may change."""
        with needing_memory("copy the run"):
            files = (streamed if self._staging is None else self._staging.copy)(content)
        manifest.refuse_large(files, self._team.size)
        return files

    def _save(
        self,
        temporary: Path,
        write: Callable[[], Mapping[str, Checksums]],
        manifest: Manifest,
        broken: Collection[str],
        exports: Collection[Future[None]],
        failure: BaseException | None,
    ) -> None:
        """In the thread: write this rank's part and tell; rank 0 commits what all have written."""
        written: Mapping[str, Checksums] | None = None
        if failure is None:  # there is a thread
            try:
                written = self._writer.several_times(write)
            except BaseException as error:
                failure = error
        unwanted: list[Path] = []
        try:
            all_written = self._team.report(temporary, written, failure)
            if all_written is not None:
                wait_for(exports)
                saved = self._commit(temporary, all_written, manifest)
                logger.info("saved %s (%s)", saved.path, saved.manifest.reason)
                unwanted = self._unwanted(broken)
        except BaseException:
            if self._team.is_first_here:
                remove_path(temporary)
            raise
        finally:
            self._team.remove(temporary, unwanted)

    def _commit(self, temporary: Path, files: Mapping[str, Checksums], manifest: Manifest) -> Saved:
        def task() -> Saved:
            found = self._remembered.scan()
            return commit(self.directory, temporary, files, manifest, self._newest, found)

        self._newest = saved = self._writer.several_times(task)
        self._remembered.add(saved)
        return saved

    def _is_claimed(self, manifest: Manifest) -> bool:
        return is_claimed(self._remembered.scan(), self.handler.keep, manifest)

    def _unwanted(self, broken: Collection[str]) -> list[Path]:
        """The directories of checkpoints that no claim keeps, under hidden names."""
        try:
            found = self._remembered.scan()
            return condemned(unclaimed(found, self.keep, broken, self.spared))
        except OSError as error:  # the save itself has not failed
            logger.warning("older checkpoints stay in %s: %s", self.directory, error)
            return []

    def _write(
        self,
        temporary: Path,
        files: Mapping[str, Payload],
        meant: Mapping[str, TensorInfo],
        iteration: int,
    ) -> Mapping[str, Checksums]:
        if self._team.is_first_here:
            self._lock.renew()
        if self._team.size > 1:
            written = write_part(temporary, files, meant, self._newest)
            synchronise(temporary)  # rank 0 commits what other hosts have written
            return written
        place, _ = place_for(self.directory, iteration, self._newest)
        with telling_failures(place):
            return write_part(temporary, files, meant, self._newest)

    def _ask_again(self, state: State[Any, Any]) -> None:
        """Ask for another save, so that the next commit point raises this save's error."""
        if ranks.world_size() == 1:  # several ranks have to be asked together
            state.save(FAILED, by=self.handler)


def _manifest_of(state: State[Any, Any], reason: str, keep: Keep) -> Manifest:
    """The manifest of a save at this moment, without its number and its files."""
    # Claims name metrics by text, so a manifest holds only metrics whose names are text.
    metrics = {name: n for name, n in scalars(state.metrics).items() if isinstance(name, str)}
    return Manifest(
        iteration=state.iteration,
        step=state.step,
        epoch=state.epoch - state.in_epoch,
        reason=reason,
        metrics=metrics,
        written={name: state.metrics.written(name) for name in metrics},
        keep=repr(keep),
        world_size=ranks.world_size(),
        versions=installed_versions(),
        time=round(time.time(), 3),
    )


def _with_reasons(text: str, reasons: list[str]) -> str:
    """A text of reasons, to which the new ones among these are added."""
    for reason in reasons:
        if f", {reason}, " not in f", {text}, ":
            text = f"{text}, {reason}" if text else reason
    return text


def _warn_of_missing(state: State[Any, Any], keep: Keep, handler: object) -> None:
    """Warn once a run if the metric of a claim does not exist."""
    if not keep.bests or (state.epoch == 1 and state.in_epoch):  # its end may produce it
        return
    numbers = scalars(state.metrics)
    missing = sorted({best.metric for best in keep.bests} - numbers.keys())
    if missing and not (memory := state.recall(handler, CheckpointMemory)).warned:
        memory.warned = True
        logger.warning(
            "%r goes by %s, which no handler has produced so far; the metrics that are "
            "numbers are %s. A checkpoint without it is never best",
            keep,
            ", ".join(map(repr, missing)),
            ", ".join(map(repr, numbers)) or "none",
        )


@dataclass(eq=False)
class CheckpointWriter:
    """Runs one task at a time, in a thread or, without `background`, at once.

    An OSError that a task raises is decided by `on_failure`: `"raise"` it in the next call of
    `wait`, or `"warn"` and go on.
    """

    background: bool
    retries: int
    on_failure: OnFailure
    _pool: ThreadPoolExecutor | None = field(default=None, init=False)
    _pending: Future[None] | None = field(default=None, init=False)
    _process: int = field(default_factory=os.getpid, init=False)

    def start(self, task: Task, failed: Callable[[], object]) -> None:
        """Start a task after the previous one; with `background`, call `failed` if it raises.

        The task is called with None. If no thread can be started for it, it is called at once, with
        the error.
        """
        self.wait()
        if not self.background:
            self.attempt(partial(task, None))
            return
        try:
            self._pending = self._submit(partial(self._carry_out, partial(task, None), failed))
        except Exception as error:
            self._pending = Future()
            try:
                self._carry_out(partial(task, error), failed)
                self._pending.set_result(None)
            except Exception as raised:
                self._pending.set_exception(raised)

    def attempt(self, task: Callable[[], Result]) -> Result | None:
        """Run a task and return its result; None after an OSError that `on_failure` only logs."""
        try:
            return task()
        except OSError as error:
            if self.on_failure == "raise":
                raise
            logger.error("%s; the run goes on without it", error)
            return None

    @property
    def under_way(self) -> Future[None] | None:
        """The task that a thread of this process carries out."""
        if os.getpid() != self._process:  # a forked process does not have the thread
            self._pool = self._pending = None
        return self._pending

    def wait(self) -> None:
        """Wait for the task under way, if any."""
        if (task := self.under_way) is not None:
            try:
                task.result()
            finally:
                if task.done():  # a KeyboardInterrupt may end the wait before the task
                    self._pending = None

    def close(self, last: Callable[[], None]) -> None:
        """Wait for the task under way, then call `last`, also if the wait is interrupted."""
        try:
            self.wait()
        finally:
            if self._pool is None:
                last()
            else:
                self._pool.submit(last)
                self._pool.shutdown()
                self._pool = None

    def _submit(self, task: Callable[[], None]) -> Future[None]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "camshaft-checkpoints")
        try:
            with needing_memory("start the thread that writes checkpoints"):
                return self._pool.submit(task)
        except BaseException:
            self._pool = None  # the pool would keep the task, for which it could not start a thread
            raise

    def _carry_out(self, task: Callable[[], object], failed: Callable[[], object]) -> None:
        try:
            self.attempt(task)
        except BaseException:
            failed()
            raise

    def several_times(self, task: Callable[[], Result]) -> Result:
        """Run a task, with retries after an OSError, and return its result.

        After an `UnreadableError`, the next attempt would end in the same way.

        Raises:
            OSError: The last attempt has failed.
        """
        for attempt in range(self.retries):
            try:
                return task()
            except UnreadableError:
                raise
            except OSError as error:
                wait = FIRST_WAIT * 2**attempt
                again = f"{attempt + 1} of {self.retries}"
                logger.warning("%s; trying again in %g s (%s)", error, wait, again)
                time.sleep(wait)
        return task()
