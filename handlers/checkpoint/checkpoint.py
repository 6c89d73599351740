"""Checkpoints: saved at commit points, kept by claims, loaded before a run starts."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch.nn import Module
from torch.optim import Optimizer

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger, ranks
from ...engine.changes import Changes
from ...engine.modules import optimizers_in
from ...engine.state import walk
from ...engine.update import Update, arrange_buckets, buckets_of, warn_of_buckets
from .directory import Saved, Verify, chosen, find
from .export import Export
from .format import Keep, latest
from .load import EvaluatesSaved, VerifyingReader, remember_settings, resume
from .save import (
    CheckpointMemory,
    Depot,
    OnFailure,
    ReadBack,
    Recorder,
    SavingHandler,
    Snapshot,
    own_states,
)
from .weights import has_groups

logger: logging.Logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class Checkpoint(EvaluatesSaved, SavingHandler):
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
            one run at a time. Several ranks need one that all of them see; where hosts share
            none, see `LocalCheckpoint`.
        when: When to save. `state.save("why")` saves too.
        keep: Which to keep: `latest(2) | best(1, "val/loss") | every(10_000)`. The newest one
            always stays, and so do the one that `resume` names by its path and any with files that
            Camshaft did not write.
        resume: True or `"latest"` to resume from the newest good checkpoint, or to start if the
            directory holds none; `"best"` for the best one by the claim in `keep`; the path of one
            checkpoint to resume from no other. A run of a given state loads nothing. Of several
            `Checkpoint` of an engine, one resumes.
        parent: Another run's directory, or one of its checkpoints: where a run begins that finds no
            checkpoint in its own. It forks off once, and later starts go on with its own.
        override: What may differ from the checkpoint; any other difference is an error that lists
            it. Names of settings, such as `"optimizer.lr"`, `"scheduler.T_max"` or all of
            `"scheduler"`: the script's value counts, and a schedule is replayed to where the run
            is. Names of objects or handlers on one side only, such as `"ema"`. Progress goes on:
            momentum, counts, patience. It may stay in the script.
        reset: What begins anew, as the script makes it: names of objects, such as `"optimizer"` or
            `"scheduler"`, and of handlers, such as `"EarlyStopping(val/loss)"`. A name works once,
            at the first start that has it, so it may stay in the script.
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
            with `resume`, or a directory that is the address of an object store.
        FileNotFoundError: `resume` is a path at which no directory is.

    >>> Checkpoint("runs/digits", resume="best")
    Traceback (most recent call last):
    ...
    ValueError: resume='best' needs one best(...) in keep; it is latest(2)
    """

    takes_any = True

    directory: str | Path
    _: KW_ONLY
    when: EventEnum | Trigger = Events.EPOCH_COMPLETED(last=True)
    keep: Keep = latest(2)
    resume: bool | str | Path | None = None
    parent: str | Path | None = None
    override: Sequence[str] = ()
    reset: Sequence[str] = ()
    start_over: bool = False
    background: bool = True
    retries: int = 3
    on_failure: OnFailure = "raise"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start_over and self.resume:
            raise ValueError(
                f"start_over=True and resume={self.resume!r} contradict each other: the first "
                "begins a new run whenever the script is started, the second goes on; choose one"
            )
        if self.resume == "best" and len(self.keep.bests) != 1:
            raise ValueError(f"resume='best' needs one best(...) in keep; it is {self.keep!r}")
        if self.parent is not None and self.resume not in (True, "latest"):
            raise ValueError(
                f"parent={str(self.parent)!r} and resume={self.resume!r}: a run that forks off "
                "goes on from its own checkpoints when it is started again; write resume=True"
            )
        if self._path is not None and not self._path.is_dir():
            raise FileNotFoundError(
                f"resume={str(self.resume)!r}: no directory is at this path; resume needs to be "
                "True, 'latest', 'best', or the path of one checkpoint"
            )
        for word, names in (("override", self.override), ("reset", self.reset)):
            if isinstance(names, str) or not all(isinstance(name, str) for name in names):
                raise TypeError(f"{word}={names!r}: needs a list of names, such as ['optimizer']")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Lock and load before the run, ask for saves by the trigger, and save when asked."""
        self.remember_weights(engine)
        engine.on(Events.LOADING)(self.open)
        engine.on(Events.LOADING)(self.begin)
        engine.on(Events.STARTED, stage=Stage.REPORT)(self.start)
        engine.on(self.when, stage=Stage.REPORT)(self.ask)
        engine.on(Events.SAVING, stage=Stage.REPORT)(self.save)
        # Before all other handlers of CLOSED, so that they can read the last checkpoint.
        engine.on(Events.CLOSED, stage=Stage.MEASURE)(self.close)

    def open(self, state: State[Any, Any]) -> None:
        """Lock the directory for this run."""
        sys.audit("camshaft.Checkpoint.open", self, state)  # for `camshaft prove`
        if state.control.writes:  # else another replica holds the lock; a save opens
            self.recorder(state).depot.open()

    def begin(self, state: State[Any, Any]) -> None:
        """Remember the script's settings, then resume, or check that the directory is new.

        Raises:
            TypeError: One of the engine's objects cannot be saved.
            ValueError: The optimizer of an `Update` is not among them, or another `Checkpoint` of
                the engine resumes too.
        """
        self.forget_weights(state.engine)
        refuse_unsaveable(state.engine.objects)
        refuse_to_forget(state.engine)
        every = state.engine.find(Checkpoint)
        resumed = [f"Checkpoint({str(each.directory)!r})" for each in every if each.resume]
        if self.resume and len(resumed) > 1:  # their order of attachment would decide
            raise ValueError(
                f"{len(resumed)} handlers have resume=: {', '.join(resumed)}. A run goes on from "
                "one checkpoint, so leave resume= to one of them; the others need none to go on "
                "saving to their directories beside it"
            )
        warn_of_buckets(state.engine)
        recorder = self.recorder(state)
        recorder.read_back = ReadBack(state.engine.objects)
        if every[0] is self:
            state.control.noted = Changes(state)
        if state.is_new:
            self._begin(state, recorder.depot, [each for each in every if each is not self])
        else:
            recorder.depot.carry_on()
        sys.audit("camshaft.Checkpoint.begin", self, state)

    def _begin(self, state: State[Any, Any], depot: Depot, others: list[Checkpoint]) -> None:
        """Remember the settings; resume a run, or start a new one."""
        remember_settings(state)
        if self.resume:
            if self.load(state, depot):
                if (noted := state.control.noted) is not None:
                    noted.put_back()
            else:
                for each in others:
                    if not each.start_over:
                        each.recorder(state).depot.refuse_earlier_run()
        elif not self.start_over and any(each.resume for each in others):
            depot.carry_on()  # the one that resumes checks this directory
        else:
            depot.begin(is_anew=self.start_over)
        memory = state.recall(self, CheckpointMemory)
        memory.override, memory.reset = list(self.override), list(self.reset)

    def start(self, state: State[Any, Any]) -> None:
        """Put back what functions of STARTED have set again."""
        is_first = state.engine.find(Checkpoint)[0] is self
        if is_first and (noted := state.control.noted) is not None:
            noted.start()
        self.recorder(state).read_back.start(state)

    def save(self, state: State[Any, Any]) -> None:
        """Copy the run if a save was asked for; the copy is written in the background.

        Raises:
            OSError: The save before could not be written, or memory has run out.
            TypeError: At the first save: what an optimizer gives cannot be put back.
            ValueError: At the first save: no start of the script could resume from it.
        """
        recorder = self.recorder(state)
        if reasons := recorder.prepare(state):
            self.record(state, recorder, reasons)

    def record(self, state: State[Any, Any], to: Recorder, reasons: list[str]) -> None:
        """Save the run by a recorder, of this handler or of one beside it."""
        recorder = self.recorder(state)
        sys.audit("camshaft.Checkpoint.save", self, state)
        if (noted := state.control.noted) is not None:
            noted.look()
        memory = state.recall(self, CheckpointMemory)
        if ranks.rank() == 0:
            memory.broken = [n for n in memory.broken if (recorder.depot.directory / n).exists()]
        if ranks.world_size() > 1:
            memory.buckets.update(buckets_of(state.engine))
        # A run that resumes from here does not repeat the exports that are being written.
        exports = [e for e in state.engine.handlers.values() if isinstance(e, Export)]
        own = own_states(state.engine.objects)  # by all ranks, before one of them may fail
        to.record(
            state,
            lambda: Snapshot.of(state, own, recorder.layout, recorder.read_back),
            reasons,
            broken=memory.broken.copy(),
            exports=[*filter(None, (each.recorder(state).writer.under_way for each in exports))],
        )

    def close(self, state: State[Any, Any]) -> None:
        """Wait until the last save is on the disk, and release the directory."""
        sys.audit("camshaft.Checkpoint.close", self, state)
        super().close(state)

    def load(self, state: State[Any, Any], depot: Depot) -> bool:
        """Resume from the chosen checkpoint; False if there is none."""
        once = VerifyingReader()
        saved, broken = depot.find(self.resume or "latest", self.keep, once.verify)
        if saved is None and self.parent is not None:
            saved = chosen(partial(_newest_of, Path(self.parent)), once.verify)
        if saved is None:
            return False
        name = state.memory.names[id(self)]  # as it has a recorder by now
        resume(state, saved, name, read_once=once, override=self.override, reset=self.reset)
        memory = state.recall(self, CheckpointMemory)
        memory.broken = sorted({*memory.broken, *broken})
        if memory.buckets:
            arrange_buckets(state.engine, memory.buckets)
        if ranks.rank() == 0:
            depot.go_on_from(saved)
        at = state.epoch, state.iteration
        logger.info("resumed from %s (epoch %d, iteration %d)", saved.path, *at)
        return True

    @property
    def _path(self) -> Path | None:
        """The one checkpoint to resume from, if `resume` is a path."""
        known = (True, False, None, "latest", "best")
        return None if self.resume in known else Path(str(self.resume))

    def depot(self, state: State[Any, Any]) -> Depot:
        """The directory, in which the checkpoint stays that `resume` names."""
        depot = super().depot(state)
        depot.spared = self._path and self._path.resolve()
        return depot


def _newest_of(parent: Path, verify: Verify) -> Saved:
    """The checkpoint at a path; of a directory the newest good one."""
    if (saved := find(parent, verify)) is None:
        raise FileNotFoundError(
            f"parent={str(parent)!r} holds no checkpoint, and neither does the run's own "
            "directory: name the directory of the run to fork off from, or one of its checkpoints"
        )
    return saved


def refuse_unsaveable(objects: Mapping[str, Any]) -> None:
    """Refuse objects that have no state to save."""
    for name, each in objects.items():
        if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
            raise TypeError(
                f"engine.objects[{name!r}] is a {type(each).__name__}, which a checkpoint "
                "cannot hold: it needs state_dict() and load_state_dict()"
            )
        if type(each).__name__ == "ZeroRedundancyOptimizer":
            raise TypeError(
                f"engine.objects[{name!r}] is a ZeroRedundancyOptimizer, whose state one rank "
                "alone gets: shard the model by FSDP2 (fully_shard), whose optimizer is saved"
            )


def refuse_to_forget(engine: Engine[Any, Any]) -> None:
    """Refuse a run whose optimizer, that of an `Update`, and so its weights would not be saved."""
    known = list(map(id, engine.objects.values()))
    for each in engine.find(Update):
        missing = [one for one in optimizers_in(each.optimizer) if id(one) not in known]
        if missing and not _are_in_states(missing, engine.objects):
            raise ValueError(
                f"{type(missing[0]).__name__}, which an Update steps, is not among "
                "the engine's objects, so neither the optimizer nor its weights would be saved: "
                'Engine(..., objects={"model": model, "optimizer": optimizer})'
            )
    if not engine.objects:
        logger.warning(
            "Checkpoint saves the state of the run and no model: the engine has no objects; "
            'Engine(..., objects={"model": model, "optimizer": optimizer}) names what a run changes'
        )


def _are_in_states(optimizers: Sequence[Optimizer], objects: Mapping[str, Any]) -> bool:
    """True if objects of the script's own classes save the states of these optimizers too."""
    own = [o for o in objects.values() if not isinstance(o, Module | Optimizer)]
    states = [one for each in own for _, one in walk(each.state_dict()) if has_groups(one)]
    saved = [[len(group["params"]) for group in each["param_groups"]] for each in states]
    return all([len(g["params"]) for g in each.param_groups] in saved for each in optimizers)
