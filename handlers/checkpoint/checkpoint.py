"""Checkpoints: saved at commit points, kept by claims, loaded before a run starts."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger, ranks
from ...engine.checks import Changes
from ..cluster.local import (
    Hosts,
    Local,
    LocalRecorder,
    ObjectStore,
    bring_newest,
    refuse_other_run,
)
from .directory import Checkpoints, Saved, chosen, next_number, verified_at
from .export import Export
from .format import Keep, latest
from .load import EvaluatesSaved, ReadOnce, resume, settings_of, settings_of_steps
from .save import (
    Buffers,
    CheckpointMemory,
    OnFailure,
    ReadBack,
    Recorder,
    arrange_buckets,
    buckets_of,
    buffers_of_own,
    check_arguments,
    refuse_second_resume,
    refuse_to_forget,
    refuse_to_mix,
    refuse_unsaveable,
    start_over,
    take_part,
    take_run,
    warn_of_buckets,
)
from .weights import FrozenWeights, Sums

logger: logging.Logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class Checkpoint(EvaluatesSaved):
    """Save the run: everything in `engine.objects`, the state, and every handler's memory.

    A save happens at the next commit point, so it never holds half a step. A checkpoint is a
    directory without any pickle: `<name>.safetensors` for each module, such as
    `model.safetensors`, under the plain names of its weights; `train.safetensors` and
    `state.json` for the other objects; `rank-00000.json` for the run of each rank; and
    `manifest.json`, with the checksums of all files. It appears at once, when all of it is on the
    disk, and only then are older ones dropped.

    A file of 1 MiB or more with the same bytes as in the checkpoint before is not written again,
    but gets a second name (a hard link). Frozen weights that are half of a module, and 1 MiB, have
    a file of their own for it, such as `model.frozen.safetensors`.

    The run only waits for a copy in memory, which a thread writes. The next save and the end of
    the run wait for that thread. A write that fails is retried after 1, 2 and 4 seconds, then
    `on_failure` decides; older checkpoints are as they were.

    A resumed run is the same run to the last bit, at the end of an epoch or in the middle. A
    broken checkpoint is skipped with a warning, for the newest good one. On several ranks, each
    one writes its own shards and state, and any number can load them: docs/guides/ranks-change.md.

    Args:
        directory: Where to write this run's checkpoints: on a disk or a mounted file system, for
            one run at a time. Several ranks need one that all of them see, or `local=True`.
        when: When to save. `state.save("why")` saves too.
        keep: Which to keep: `latest(2) | best(1, "val/loss") | every(10_000)`. The newest one
            always stays, and so do the one that `resume` names by its path and any with files that
            Camshaft did not write.
        local: `Local("/nvme/run", when=...)` to save to a disk of each host too, more often:
            docs/guides/local-disks.md. `resume=True` takes the newest checkpoint of all. True if
            the directory itself is on a disk of each host, since the hosts share none: each host
            writes the files of its own ranks and sends a copy to the next host.
        resume: True or `"latest"` to resume from the newest good checkpoint, or to start if the
            directory holds none; `"best"` for the best one by the claim in `keep`; the path of one
            checkpoint to resume from no other. A run of a given state loads nothing. Of several
            `Checkpoint` of an engine, one resumes.
        override: What may differ from the checkpoint; any other difference is an error that lists
            it. Names of settings, such as `"optimizer.lr"`, `"scheduler.T_max"` or all of
            `"scheduler"`: the script's value counts, and a schedule is replayed to where the run
            is. Names of objects or handlers on one side only, such as `"ema"`. Progress goes on:
            momentum, counts, patience. It may stay in the script.
        reset: What begins anew, as the script makes it: names of objects, such as `"optimizer"` or
            `"scheduler"`, and of handlers, such as `"EarlyStopping(val/loss)"`. A name works once,
            at the first start that has it, so it may stay in the script.
        frozen: False to leave out the weights that need no gradient and have not changed in the
            run, such as those below an adapter. Their checksums are saved, so the script has to
            make the same ones when it resumes.
        start_over: True to begin a new run, each time the script is started, where an earlier run
            left checkpoints. They are moved to `<directory>/earlier.1`, or the next number that is
            free, and never deleted.
        background: False to write on the thread that trains: the run waits for the disk, and needs
            no memory for a copy.
        retries: How often a write that failed is tried again.
        on_failure: What to do when a save cannot be written, or memory or threads run out for it:
            `"raise"` to end the run by an OSError at the next commit point (on several ranks at
            the next save), at the latest when it is closed; `"warn"` to go on, and write the next
            save as usual.

    Raises:
        TypeError: `keep` is not made of `latest`, `best` and `every`, or `override` or `reset` is
            no list.
        ValueError: `resume="best"` without exactly one `best(...)` in `keep`, `start_over` together
            with `resume`, a directory that is the address of an object store, or `local=True`
            together with `resume="best"` or a path.
        FileNotFoundError: `resume` is a path that does not exist.

    >>> Checkpoint("runs/digits", resume="best")
    Traceback (most recent call last):
    ...
    ValueError: resume='best' needs one best(...) in keep; it is latest(2)
    """

    directory: str | Path
    _: KW_ONLY
    when: EventEnum | Trigger = Events.EPOCH_COMPLETED(last=True)
    keep: Keep = latest(2)
    local: Local | bool | None = None
    resume: bool | str | Path | None = None
    override: Sequence[str] = ()
    reset: Sequence[str] = ()
    frozen: bool = True
    start_over: bool = False
    background: bool = True
    retries: int = 3
    on_failure: OnFailure = "raise"

    def __post_init__(self) -> None:
        check_arguments(self)
        if self.start_over and self.resume:
            raise ValueError(
                f"start_over=True and resume={self.resume!r} contradict each other: the first "
                "begins a new run whenever the script is started, the second goes on; choose one"
            )
        if self.resume == "best" and len(self.keep.bests) != 1:
            raise ValueError(f"resume='best' needs one best(...) in keep; it is {self.keep!r}")
        if self._path is not None and not self._path.exists():
            raise FileNotFoundError(
                f"resume={str(self.resume)!r}: this path does not exist; resume needs to be True, "
                "'latest', 'best', or the path of one checkpoint"
            )
        self._check_local()
        for word, names in (("override", self.override), ("reset", self.reset)):
            if isinstance(names, str) or not all(isinstance(name, str) for name in names):
                raise TypeError(f"{word}={names!r}: needs a list of names, such as ['optimizer']")

    def _check_local(self) -> None:
        if not isinstance(self.local, Local | bool | None):
            raise TypeError(
                f"local={self.local!r}: needs Local('/a/disk/of/each/host', when=...); or True if "
                "the directory itself is on a disk of each host"
            )
        if self.has_own_disks and self.resume not in (True, False, None, "latest"):
            raise ValueError(
                f"local=True and resume={str(self.resume)!r}: hosts that share no directory resume "
                "from the newest checkpoint alone, with resume=True; to begin from another one, "
                "copy it to a directory that all hosts share, or to each host"
            )
        if not isinstance(self.local, Local):
            return
        if Path(self.local.directory).resolve() == Path(self.directory).resolve():
            raise ValueError(
                f"Checkpoint({str(self.directory)!r}, local=Local(...)) names one directory twice: "
                "local= needs another one, on a disk of each host; or local=True if the hosts "
                "share none"
            )

    @property
    def has_own_disks(self) -> bool:
        """True if the directory is on a disk of each host, and the hosts share none."""
        return self.local is True

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Lock and load before the run, ask for saves by the trigger, and save when asked."""
        self.note_weights(engine)
        engine.on(Events.LOADING)(self.open)
        engine.on(Events.LOADING)(self.begin)
        engine.on(Events.STARTED, stage=Stage.REPORT)(self.start)
        engine.on(self.when, stage=Stage.REPORT)(self.ask)
        engine.on(Events.SAVING, stage=Stage.REPORT)(self.save)
        if isinstance(self.local, Local):
            engine.on(self.local.when, stage=Stage.REPORT)(self.local.ask)
        # Before all other handlers of CLOSED, so that they can read the last checkpoint.
        engine.on(Events.CLOSED, stage=Stage.MEASURE)(self.close)

    def open(self, state: State[Any, Any]) -> None:
        """Lock the directory for this run.

        Raises:
            BlockingIOError: Another run writes to it.
        """
        sys.audit("camshaft.Checkpoint.open", self, state)  # for `camshaft prove`
        if state.control.writes:  # else another replica holds the lock; a save opens
            self._recorder(state).open()
        if (local := self._recorder(state).local) is not None:
            local.open()

    def copy_to(self, state: State[Any, Any], store: ObjectStore) -> Hosts:
        """Let hosts that share no directory copy their files to a store; return the hosts.

        Raises:
            ValueError: They copy to another store already.
        """
        recorder = self._recorder(state)
        assert isinstance(recorder, LocalRecorder)
        recorder.open()
        if recorder.store not in (None, store):
            raise ValueError(
                f"Checkpoint({str(self.directory)!r}, local=True): needs one Mirror in its engine, "
                "and there are several"
            )
        recorder.store = store
        return recorder.hosts

    def begin(self, state: State[Any, Any]) -> None:
        """Note the script's settings, then resume, or check that the directory is new.

        Raises:
            TypeError: One of the engine's objects cannot be saved.
            ValueError: The optimizer of an `Update` is not among them, or another `Checkpoint` of
                the engine resumes too.
        """
        self.note_run(state.engine)
        refuse_unsaveable(state.engine.objects)
        refuse_to_forget(state.engine)
        if self.resume:
            others = (each for each in self._others(state) if each.resume)
            refuse_second_resume([str(each.directory) for each in (self, *others)])
        warn_of_buckets(state.engine)
        self._recorder(state).read_back = ReadBack(state.engine.objects)
        self._begin_local(state)
        if self._is_first(state):
            Changes(state)
        if state.is_new:
            self._begin(state)
        if not self.frozen:
            self._recorder(state).frozen = FrozenWeights.of(state.engine.objects)
        sys.audit("camshaft.Checkpoint.begin", self, state)

    def _begin(self, state: State[Any, Any]) -> None:
        """Note the settings; resume a run, or start a new one."""
        control = state.control
        # No real run resumes a trial run; and epochs of another length are other epochs.
        limit = {"max_batches": control.max_batches, "epoch_length": control.epoch_length}
        steps = settings_of_steps(state.engine.handlers)
        control.settings = control.settings or settings_of(state.engine.objects) | steps | limit
        others = self._others(state)
        if self.resume:
            if self.load(state):
                state.control.noted.put_back()
            else:
                for each in others:
                    if not each.start_over:
                        each.refuse_to_mix(state)
        elif self.has_own_disks:
            pass  # `_begin_local` has looked at the directories of all hosts
        elif self.start_over:
            start_over(self.directory)
        elif not any(each.resume for each in others):  # one that resumes checks this directory
            refuse_to_mix(self.directory)
        memory = state.recall(self, CheckpointMemory)
        memory.override, memory.reset = list(self.override), list(self.reset)

    def refuse_to_mix(self, state: State[Any, Any]) -> None:
        """Refuse a new run beside the checkpoints of an earlier one."""
        recorder = self._recorder(state)
        if isinstance(recorder, LocalRecorder):
            recorder.open()
            refuse_other_run(recorder.directory, recorder.hosts)
        else:
            refuse_to_mix(self.directory)

    def _begin_local(self, state: State[Any, Any]) -> None:
        """Bring the newest checkpoint of the hosts' disks, and give the run its name."""
        recorder = self._recorder(state)
        local = recorder if isinstance(recorder, LocalRecorder) else recorder.local
        if local is None:
            return
        is_beside = not (self.resume or self.start_over)
        is_beside = is_beside and any(each.resume for each in self._others(state))
        if isinstance(recorder, LocalRecorder) and (is_beside or not state.is_new):
            recorder.carry_on()
            return
        goes_on = state.is_new and self.resume in (True, "latest")
        if state.is_new and not self.resume and not self.start_over:
            refuse_other_run(local.directory, local.hosts)
        if isinstance(recorder, LocalRecorder):
            recorder.begin(is_wanted=goes_on, is_anew=self.start_over)
            return
        run, starts = bring_newest(
            recorder.directory, local.directory, local.hosts, self.keep, is_wanted=goes_on
        )
        if self.start_over or not run:
            run = ranks.from_first(uuid4().hex)
        recorder.lineage = local.lineage = run, starts + 1

    def start(self, state: State[Any, Any]) -> None:
        """Put back what functions of STARTED have set again."""
        if self._is_first(state):
            state.control.noted.start()

    def ask(self, state: State[Any, Any]) -> None:
        """Ask for a save at the next commit point."""
        state.save(repr(Trigger.of(self.when)), by=self)

    def save(self, state: State[Any, Any]) -> None:
        """Copy the run if a save was asked for; the copy is written in the background.

        Raises:
            OSError: The save before could not be written, or memory has run out.
            TypeError: At the first save: what an optimizer gives cannot be put back.
            ValueError: At the first save: no start of the script could resume from it.
        """
        recorder = self._recorder(state)
        for each in filter(None, (recorder.local, recorder)):
            if reasons := each.prepare(state):
                self._record(state, each, reasons)

    def _record(self, state: State[Any, Any], to: Recorder, reasons: list[str]) -> None:
        recorder = self._recorder(state)
        sys.audit("camshaft.Checkpoint.save", self, state)
        state.control.noted.look()
        memory = state.recall(self, CheckpointMemory)
        if ranks.rank() == 0:
            memory.broken = [n for n in memory.broken if (recorder.directory / n).exists()]
        left_out: Sums = {}
        if recorder.frozen is not None:  # its sums over shards are a collective
            left_out = recorder.frozen.left_out(memory.weights)
        buffers: Buffers = {}
        if ranks.world_size() > 1:
            buffers = buffers_of_own(state.engine.objects)
            memory.buckets.update(buckets_of(state.engine))
        engine, layout, checked = state.engine, recorder.layout, recorder.read_back
        objects, lent = engine.objects, engine.lent
        to.record(
            state,
            lambda: take_run(objects, take_part(state), layout, lent, left_out, buffers, checked),
            reasons,
            broken=memory.broken.copy(),
            exports=self._exports(state),
        )

    def wait(self, state: State[Any, Any]) -> None:
        """Wait until the last save is on the disk, for handlers that read it during the run.

        Raises:
            OSError: The save could not be written.
        """
        self._recorder(state).wait()

    def close(self, state: State[Any, Any]) -> None:
        """Wait until the last save is on the disk, and release the directory.

        Raises:
            OSError: The save could not be written.
        """
        sys.audit("camshaft.Checkpoint.close", self, state)
        recorder = self._recorder(state)
        try:
            recorder.close(state)
        finally:
            if recorder.local is not None:
                recorder.local.close(state)

    def load(self, state: State[Any, Any]) -> bool:
        """Resume from the chosen checkpoint; False if there is none."""
        once, recorder = ReadOnce(), self._recorder(state)
        if isinstance(recorder, LocalRecorder):
            path, broken = recorder.goes_on(), list[str]()
        else:
            path, broken = chosen(self._choose, once.verify)
        if path is None:
            return False
        name = state.engine.name_of(self)
        resume(state, path, name, read_once=once, override=self.override, reset=self.reset)
        memory = state.recall(self, CheckpointMemory)
        memory.broken = sorted({*memory.broken, *broken})
        if memory.buckets:
            arrange_buckets(state.engine, memory.buckets)
        if ranks.rank() == 0:
            recorder.go_on_from(path)
        logger.info("resumed from %s (epoch %d, iteration %d)", path, state.epoch, state.iteration)
        return True

    def _is_first(self, state: State[Any, Any]) -> bool:
        found = state.engine.handlers.values()
        return next(each for each in found if isinstance(each, Checkpoint)) is self

    def _others(self, state: State[Any, Any]) -> list[Checkpoint]:
        found = state.engine.handlers.values()
        return [each for each in found if isinstance(each, Checkpoint) and each is not self]

    def _exports(self, state: State[Any, Any]) -> list[Future[None]]:
        """The exports that are being written: a run that resumes from here does not repeat them."""
        exports = [each for each in state.engine.handlers.values() if isinstance(each, Export)]
        found = [each.under_way(state) for each in exports]
        return [each for each in found if each is not None]

    @property
    def _path(self) -> Path | None:
        """The one checkpoint to resume from, if `resume` is a path."""
        known = (True, False, None, "latest", "best")
        return None if self.resume in known else Path(str(self.resume))

    def _choose(self, verify: Callable[[Saved], None]) -> tuple[Path | None, list[str]]:
        if self._path is not None:
            path: Path | None = verified_at(self._path, verify).path
            broken: list[str] = []
            next_number(Path(self.directory))  # a run that cannot save should not begin
        else:
            found, is_best = Checkpoints(self.directory, verify), self.resume == "best"
            saved = found.best_by(self.keep.bests[0]) if is_best else found.latest()
            path, broken = saved.path if saved else None, sorted(found.broken)
            next_number(Path(self.directory), found)
        return path, broken

    def _recorder(self, state: State[Any, Any]) -> Recorder:
        def make() -> Recorder:
            if self.has_own_disks:
                return LocalRecorder(self, background=self.background)
            recorder = Recorder(self, background=self.background)
            recorder.spared = self._path and self._path.resolve()
            if isinstance(self.local, Local):
                recorder.local = LocalRecorder(self.local, background=self.background)
            return recorder

        return state.recall(self, make, saved=False)
