"""The saves of one handler in one run: asked for, taken, copied, and written by a thread."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from ....engine import EventEnum, State, Trigger, ranks
from ....engine.state import whole_number
from ...common import scalars
from ..format import Keep, Payload, TensorInfo, UnreadableError, needing_memory
from ..sharding import Layout
from .depot import Depot, Draft
from .read_back import ReadBack
from .snapshot import Snapshot, Staging, manifest_of
from .team import Files, check_same_weights

logger: logging.Logger = logging.getLogger("camshaft")

FIRST_WAIT = 1.0
"""Seconds before the first retry; each further wait is twice as long."""
Result = TypeVar("Result")
Task = Callable[[Exception | None], object]
FAILED = "the last one failed"
OnFailure = Literal["raise", "warn"]
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class SavingHandler:
    """A handler whose checkpoints a `Recorder` writes; see `Checkpoint` for its fields."""

    directory: str | Path
    when: EventEnum | Trigger
    keep: Keep
    retries: int
    on_failure: OnFailure
    background: bool
    is_mirrored: ClassVar[bool] = True
    """False if `Mirror` does not copy what it writes."""
    takes_any: ClassVar[bool] = False
    """True if a save that names no handler, by `state.save("why")`, is meant for it too."""

    def __post_init__(self) -> None:
        directory, keep = self.directory, self.keep
        whole_number("retries", self.retries)
        if not isinstance(directory, str | PathLike):
            raise TypeError(
                f"directory={directory!r}: needs the path of a directory, such as 'runs/name'"
            )
        if not isinstance(keep, Keep):
            raise TypeError(
                f"keep={keep!r}: needs latest(...), best(...), every(...), or several of them "
                "combined with |"
            )
        if self.on_failure not in ("raise", "warn"):
            raise ValueError(f"on_failure={self.on_failure!r}: needs 'raise' or 'warn'")
        if ADDRESS.match(str(directory)):
            remedy = (
                f"add Mirror({str(directory)!r}) to the engine: it copies finished checkpoints "
                "there, and fetches them to an empty disk"
                if self.is_mirrored
                else "copy the export there when the run is done: Mirror copies checkpoints alone"
            )
            raise ValueError(
                f"directory={str(directory)!r}: needs a directory on a file system. A whole "
                "checkpoint rests on fsync and on an atomic rename, which object stores do not "
                f"have. Write to a local disk or a mounted file system, and {remedy}"
            )
        try:
            Keep.of(repr(keep))  # `camshaft inspect` reads it from a manifest
        except ValueError as error:
            raise ValueError(
                f"{error}; keep= is saved as this text, so use fewer claims"
            ) from error
        try:
            str(directory).encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"directory={str(directory)!r} has bytes that are not UTF-8, where safetensors "
                "reads no file; rename the directory"
            ) from error
        if Path(directory).is_file():
            raise NotADirectoryError(
                f"directory={str(directory)!r} is a file; name a directory for checkpoints"
            )

    def depot(self, state: State[Any, Any]) -> Depot:
        """Where its checkpoints are."""
        return Depot(self.directory)

    def has_thread(self, state: State[Any, Any]) -> bool:
        """False to write on the thread that trains."""
        return self.background

    def recorder(self, state: State[Any, Any]) -> Recorder:
        """What writes its checkpoints of a run."""
        return state.recall(
            self, lambda: Recorder(self, self.depot(state), self.has_thread(state)), saved=False
        )

    def ask(self, state: State[Any, Any]) -> None:
        """Ask for a save at the next commit point."""
        state.save(repr(Trigger.of(self.when)), by=self)

    def wait(self, state: State[Any, Any]) -> None:
        """Wait until the last save is on the disk, for handlers that read it during the run.

        Raises:
            OSError: The save could not be written.
        """
        self.recorder(state).writer.wait()

    def close(self, state: State[Any, Any]) -> None:
        """Wait until the last save is on the disk, and release the directory.

        Raises:
            OSError: The save could not be written.
        """
        recorder = self.recorder(state)
        recorder.close(state)
        has_ended = state.error is None and state.iteration and not state.is_interrupted
        if not has_ended or recorder.was_asked or ranks.rank():
            return
        with suppress(OSError):  # a directory that cannot be listed is no error of the run
            if not recorder.depot.home.names:
                logger.warning(
                    "%s(%r) has saved nothing: %r did not fire in %d iterations. Write last=True "
                    "into the trigger, to save at the end too",
                    *(type(self).__name__, str(self.directory), Trigger.of(self.when)),
                    state.iteration,
                )


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
    """Empty: format 3 has this name, from when checkpoints could leave frozen weights out."""
    buckets: dict[str, list[list[int]]] = field(default_factory=dict)
    """By model, the buckets in which more than two ranks add up its gradients under DDP."""


class Recorder:
    """Takes, writes and drops the saves of one handler in one run.

    A save is taken and copied at a commit point. Then a thread writes this rank's part, reports
    to rank 0, and on rank 0 commits what all ranks have written. One process does the same as one
    of several ranks; it only sends no report.
    """

    def __init__(self, handler: SavingHandler, depot: Depot, background: bool) -> None:
        """Write nothing yet; without `background`, later on the thread that trains."""
        self.handler = handler
        self.depot = depot
        self.read_back: ReadBack = ReadBack({})
        self.layout: Layout = Layout()
        self.writer: CheckpointWriter = CheckpointWriter(
            background, handler.retries, handler.on_failure
        )
        self._staging = Staging() if background else None
        self.was_asked: bool = False
        """True after the first save was asked for; the weights of the ranks are compared then."""

    def prepare(self, state: State[Any, Any], own: Mapping[str, Any] | None = None) -> list[str]:
        """The reasons to save these objects, by default all, at this commit point; may be empty.

        Raises:
            ValueError: At the first save: ranks hold other weights, which are no shards of one.
        """
        handler = self.handler
        asked = [w for w, by in state.saves if by is handler or (by is None and handler.takes_any)]
        if asked:
            self.depot.open()
            _warn_of_missing(state, handler.keep, handler)
            if not self.was_asked:
                check_same_weights(state.engine.objects if own is None else own)
                self.was_asked = True
        return asked

    def record(
        self,
        state: State[Any, Any],
        take: Callable[[], Snapshot],
        reasons: list[str],
        broken: Collection[str] = (),
        exports: Collection[Future[None]] = (),
    ) -> None:
        """Copy what `take` gives, write the copy, and drop the checkpoints that no claim keeps.

        On ranks that write together, all ranks call this, and `take` gives the part of each. When
        this returns, the run may change; an error in writing is raised by the next call or by
        `wait`. A save of the same iteration as the save before replaces it, with the reasons of
        both. An export that no claim would keep is not written. Checkpoints that are `broken` are
        ignored. The checkpoint appears after these `exports`, or their failure.

        Raises:
            OSError: The save before could not be written, or memory has run out.
            RuntimeError: The ranks save different objects, or distribute them differently.
        """
        depot, team, writer, keep = self.depot, self.depot.team, self.writer, self.handler.keep
        # Claims name metrics by text, so a manifest holds only metrics whose names are text.
        metrics = {name: n for name, n in scalars(state.metrics).items() if isinstance(name, str)}
        manifest = manifest_of(
            *(state, depot.reasons(state, reasons), metrics),
            step=state.step,
            written={name: state.metrics.written(name) for name in metrics},
            keep=repr(keep),
            world_size=ranks.world_size(),
            run=depot.lineage[0],
            start=depot.lineage[1],
        )

        def copy() -> tuple[Snapshot, Mapping[str, Payload]] | None:
            if not depot.is_wanted(manifest, keep):
                return None
            snapshot = take()
            with needing_memory("copy the run"):
                staging = self._staging
                files = snapshot.streamed() if staging is None else staging.copy(snapshot)
            manifest.refuse_large(files, team.size)
            return snapshot, files

        with team.all("take part in a checkpoint"):
            writer.wait()
            copied = writer.attempt(copy)
        snapshot, files = copied or (Snapshot({}, {}), None)
        if not team.all_have(files, snapshot.digest) or files is None:
            return
        save = Save(depot.new_draft(manifest), files, snapshot.pieces, self, broken, exports)
        writes_in_thread = self._staging is not None
        with nullcontext() if writes_in_thread else team.all("write its part of a checkpoint"):
            writer.start(save, partial(self._ask_again, state))

    def _ask_again(self, state: State[Any, Any]) -> None:
        """Ask for another save, so that the next commit point raises this save's error."""
        if ranks.world_size() == 1:  # several ranks have to be asked together
            state.save(FAILED, by=self.handler)

    def close(self, state: State[Any, Any]) -> None:
        """Wait until the last save is on the disk, and release the directory."""
        together = ranks.on_all_ranks("write its last checkpoint")
        with nullcontext() if state.error is not None else together:  # ranks that fail do not meet
            if state.error is not None:
                self.depot.team.give_up()
            try:
                self.writer.close(self.depot.close)
            finally:  # close raises the error, so no commit point has to
                saves = state.saves
                saves[:] = [each for each in saves if each != (FAILED, self.handler)]


@dataclass(frozen=True, eq=False)
class Save:
    """One save on its way to the disk; the thread calls it."""

    draft: Draft
    files: Mapping[str, Payload]
    pieces: Mapping[str, TensorInfo]
    recorder: Recorder
    broken: Collection[str]
    exports: Collection[Future[None]]

    def __call__(self, failure: BaseException | None) -> None:
        """Write this rank's part and tell, or why no thread could; rank 0 commits all parts."""
        draft, depot, again = self.draft, self.draft.depot, self.recorder.writer.several_times
        written: Files | None = None
        if failure is None:
            try:
                written = again(lambda: draft.write(self.files, self.pieces))
            except BaseException as error:
                failure = error
        unwanted: list[Path] = []
        try:
            manifest = draft.tell(written, failure)
            if manifest is not None:  # else another rank commits
                wait_for(self.exports)
                saved = again(lambda: draft.commit(manifest))
                draft.committed(saved)
                logger.info("saved %s (%s)", saved.path, saved.manifest.reason)
                unwanted = depot.hide_unclaimed(self.recorder.handler.keep, self.broken)
        except BaseException:
            draft.give_up()
            raise
        finally:
            depot.team.remove(draft.path, unwanted)


def _warn_of_missing(state: State[Any, Any], keep: Keep, handler: object) -> None:
    """Warn once a run if the metric of a claim does not exist."""
    if not keep.bests or (state.epoch == 1 and state.in_epoch):  # its end may produce it
        return
    numbers = scalars(state.metrics)
    missing = sorted({best.metric for best in keep.bests} - numbers.keys())
    for each in state.engine.handlers.values():
        if isinstance(later := getattr(each, "awaits", None), str):  # how metrics to come begin
            missing = [name for name in missing if not name.startswith(later)]
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
            self.attempt(lambda: task(None))
            return

        def carry_out(unable: Exception | None) -> None:
            try:
                self.attempt(lambda: task(unable))
            except BaseException:
                failed()
                raise

        try:
            self._pool = self._pool or ThreadPoolExecutor(1, "camshaft-checkpoints")
            with needing_memory("start the thread that writes checkpoints"):
                self._pending = self._pool.submit(carry_out, None)
        except Exception as error:
            self._pool = None  # the pool would keep the task, for which it could start no thread
            self._pending = Future()
            try:
                carry_out(error)
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
            if (pool := self._pool) is None:
                last()
            else:
                self._pool, done = None, pool.submit(last)
                pool.shutdown()
                done.result()  # it raises what `last` has raised

    def several_times(self, task: Callable[[], Result]) -> Result:
        """Run a task, with retries after an OSError, and return its result.

        After an `UnreadableError`, the next attempt would end in the same way.
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
