"""Checkpoints: saved at commit points, kept by claims, loaded before a run starts."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...engine import ranks
from ...engine.engine import Engine
from ...engine.events import EventEnum, Events, Stage, Trigger
from ...engine.state import RunningEngine, State
from ...engine.update import Update
from .background import Failure
from .directory.catalogue import checkpoints, named
from .directory.saved import look_at
from .directory.store import read
from .format.errors import reading
from .format.retention import Keep, latest
from .recorder import Notes, asked, check, recorder, warn_of_missing
from .resume.resume import Resumption
from .resume.settings import settings
from .snapshot import Snapshot, content, take, take_part

logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Save the run: everything in `engine.objects`, the state, and every handler's memory.

    A save happens at the next commit point, so it never holds half a step. A checkpoint is a
    directory without any pickle: `<name>.safetensors` for each module, such as
    `model.safetensors`, under the plain names of its weights; `train.safetensors` and
    `state.json` for everything else; and `manifest.json`, with checksums of them all. It appears
    at once, when it is really on the disk, and only then are older ones dropped.

    The run only waits for a copy in memory; a thread writes it, while the next save waits for it
    and so does the end of the run. Writing that fails is tried again after 1, 2 and 4 seconds,
    then `failure` decides; the older checkpoints are as they were.

    A run that goes on from a checkpoint is the same run to the last bit, at the end of an epoch or
    in the middle. A broken checkpoint is passed over, loudly, for the newest good one. On several
    ranks, the first one writes and all of them load.

    Args:
        directory: Where this run's checkpoints lie, on a disk or a mounted file system; one run
            writes to it at a time.
        when: When to save. `state.save("why")` saves too.
        keep: Which to keep: `latest(2) | best(1, "val/loss") | every(10_000)`. The newest one
            always stays, and so do the one that `resume` names by its path and any that holds files
            of somebody else.
        resume: True or `"latest"` to go on from the newest good checkpoint, or to start if there
            is none yet; `"best"` for the best one by the claim in `keep`; the path of one
            checkpoint to go on from no other. A run that carries on a given state loads nothing.
        override: What may differ from the checkpoint, where it otherwise is an error that lists
            it: settings such as `"optimizer.lr"`, `"scheduler.T_max"` or all of `"scheduler"`,
            which are then the script's, a schedule being replayed to where the run is; objects
            that only one side has, such as `"ema"`; handlers, such as `"EarlyStopping(val/loss)"`,
            that begin anew, once. It may stay in the script.
        background: False to write on the thread that trains: it waits for the disk, and needs no
            memory for a copy.
        retries: How often writing that failed is tried again.
        failure: `"raise"` to end the run by an OSError at the next commit point, at the latest
            when it is closed; `"warn"` to go on, and write the next save as usual.

    Raises:
        TypeError: `keep` is not made of `latest`, `best` and `every`, or `override` is no list.
        ValueError: `resume="best"` without exactly one `best(...)` in `keep`, or a directory that
            is the address of an object store.
        FileNotFoundError: `resume` is a path where there is nothing.

    >>> Checkpoint("runs/digits", resume="best")
    Traceback (most recent call last):
    ...
    ValueError: resume='best' needs one best(...) in keep; it is latest(2)
    """

    directory: str | Path
    when: EventEnum | Trigger = Events.EPOCH_COMPLETED(last=True)
    keep: Keep = latest(2)
    resume: bool | str | Path | None = None
    override: Sequence[str] = ()
    background: bool = True
    retries: int = 3
    failure: Failure = "raise"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check(self)
        if self.resume == "best" and len(self.keep.bests) != 1:
            raise ValueError(f"resume='best' needs one best(...) in keep; it is {self.keep!r}")
        if self._path is not None and not self._path.exists():
            raise FileNotFoundError(
                f"resume={str(self.resume)!r}: there is nothing at this path; it needs to be True, "
                "'latest', 'best', or the path of one checkpoint"
            )
        if isinstance(self.override, str) or not all(isinstance(n, str) for n in self.override):
            raise TypeError(
                f"override={self.override!r}: needs a list of names, such as ['optimizer.lr']"
            )

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Lock and load before the run, ask for saves by the trigger, and save when asked."""
        engine.on(Events.LOADING)(self.open)
        engine.on(Events.LOADING)(self.begin)
        engine.on(self.when, stage=Stage.REPORT)(self.ask)
        engine.on(Events.SAVING, stage=Stage.REPORT)(self.save)
        # First of all, so that whoever else is called at the end can read what was written.
        engine.on(Events.CLOSED, stage=Stage.MEASURE)(self.close)

    def open(self, state: State[Any, Any]) -> None:
        """Keep the directory for this run.

        Raises:
            BlockingIOError: Another run writes to it.
        """
        recorder(self, state).open(self._path)

    def begin(self, state: State[Any, Any]) -> None:
        """Note what the script has set, then go on from a checkpoint, or see that none is there.

        Raises:
            TypeError: One of the engine's objects cannot be saved.
            ValueError: What the run changes is not among them.
        """
        for name, each in state.engine.objects.items():
            if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
                raise TypeError(
                    f"engine.objects[{name!r}] is a {type(each).__name__}, which a checkpoint "
                    "cannot hold: it needs state_dict() and load_state_dict()"
                )
        _refuse_to_forget(state.engine)
        if state.iteration > 0 or state.control.position is not None:
            return
        limit = {"max_batches": state.control.max_batches}  # no real run goes on from a trial
        state.control.settings = state.control.settings or settings(state.engine.objects) | limit
        if self.resume:
            self.load(state)
        else:
            self.refuse_to_mix()

    def ask(self, state: State[Any, Any]) -> None:
        """Ask for a save at the next commit point."""
        state.save(repr(Trigger.of(self.when)), by=self)

    def save(self, state: State[Any, Any]) -> None:
        """Copy the run if anybody asked for that here; the copy is written in the background.

        Raises:
            OSError: The save before could not be written.
        """
        if not (reason := asked(self, state, of_all=True)):
            return
        self.open(state)
        own = recorder(self, state)
        warn_of_missing(self, state)
        with ranks.on_all_ranks("take part in a checkpoint"):
            own.wait()
            part = take_part(state)
        parts = ranks.gathered(part)
        with ranks.on_all_ranks("write a checkpoint"):
            if ranks.rank() == 0:
                snapshot = take(state.engine.objects, parts, state.engine.lent)
                own.record(state, snapshot, reason, broken=self._broken(state))

    def wait(self, state: State[Any, Any]) -> None:
        """Wait until the last save is on the disk: for handlers that read it during the run.

        Raises:
            OSError: It could not be written.
        """
        recorder(self, state).wait()

    def close(self, state: State[Any, Any]) -> None:
        """Wait until the last save is on the disk, and let others have the directory.

        Raises:
            OSError: It could not be written.
        """
        recorder(self, state).close(state)

    def refuse_to_mix(self) -> None:
        """Begin no new run over the checkpoints of another: they would be dropped one by one.

        Raises:
            FileExistsError: There are some.
        """
        if found := checkpoints(self.directory):
            raise FileExistsError(
                f"{self.directory} holds checkpoints of an earlier run, such as "
                f"{found[-1].path.name}; pass resume=True to go on with it, or choose another "
                "directory for a new run; run(state=...) carries on a state at hand"
            )

    def load(self, state: State[Any, Any]) -> None:
        """Put the engine's objects and the state to where a checkpoint has them."""
        choice: tuple[Path | None, list[str]] = (None, [])
        with ranks.on_all_ranks("find a checkpoint"):
            if ranks.rank() == 0:
                choice = self._choose()
        path, broken = ranks.gathered(choice)[0]
        if path is None:
            return
        with ranks.on_all_ranks(f"read {path}"), reading(path):
            resumption = self._resumption(read(look_at(path)), state)
            own = resumption.names()
        names = set[str]().union(*ranks.gathered(own))
        with ranks.on_all_ranks(f"load {path}"), _naming(path):
            resumption.check(names)
        with ranks.on_all_ranks(f"load {path}"), _naming(path):
            resumption.carry_out(state)
        notes = state.recall(self, Notes)
        notes.override = list(self.override)
        notes.broken = sorted({*notes.broken, *broken})
        logger.info("goes on from %s (epoch %d, iteration %d)", path, state.epoch, state.iteration)

    @property
    def _path(self) -> Path | None:
        """The one checkpoint to go on from, if it is named by its path."""
        known = (True, False, None, "latest", "best")
        return None if self.resume in known else Path(str(self.resume))

    def _resumption(self, snapshot: Snapshot, state: State[Any, Any]) -> Resumption:
        saved = content(snapshot)
        notes = saved.run["memory"].get(state.engine.name_of(self), {})
        return Resumption(
            saved, state.engine, state.control.settings, self.override, notes.get("override", ())
        )

    def _choose(self) -> tuple[Path | None, list[str]]:
        if self._path is not None:
            return named(self._path).path, []
        found = checkpoints(self.directory)
        saved = found.best_by(self.keep.bests[0]) if self.resume == "best" else found.latest()
        return None if saved is None else saved.path, sorted(found.broken)

    def _broken(self, state: State[Any, Any]) -> list[str]:
        notes = state.recall(self, Notes)
        directory = recorder(self, state).directory
        notes.broken = [name for name in notes.broken if (directory / name).exists()]
        return notes.broken.copy()


def _refuse_to_forget(engine: RunningEngine) -> None:
    """Save no run whose weights would not be saved with it."""
    known = list(map(id, engine.objects.values()))
    for each in engine.handlers.values():
        if isinstance(each, Update) and id(each.optimizer) not in known:
            raise ValueError(
                f"{type(each.optimizer).__name__}, by which an Update steps, is not among the "
                "engine's objects, so neither it nor its weights would be saved: "
                'Engine(..., objects={"model": model, "optimizer": optimizer})'
            )
    if not engine.objects:
        logger.warning(
            "Checkpoint saves the state of the run and no model: the engine has no objects; "
            'Engine(..., objects={"model": model, "optimizer": optimizer}) names what a run changes'
        )


@contextmanager
def _naming(path: Path) -> Generator[None, None, None]:
    """Say of what does not fit which checkpoint it does not fit."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"cannot load {path}: {error}") from error
