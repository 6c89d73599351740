"""Checkpoints: saved at commit points, kept by claims, loaded before a run starts."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...engine import ranks
from ...engine.engine import Engine
from ...engine.events import EventEnum, Events, Stage, Trigger
from ...engine.state import State
from ..scalars import scalars
from .lookup import checkpoints, named
from .manifest import Manifest
from .retention import Keep, latest
from .saved import Saved, drop, look_at
from .snapshot import put_back, take, take_part
from .store import read, write

logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Save the run: everything in `engine.objects`, the state, and every handler's memory.

    A save happens at the next commit point, so it never holds half a step. A checkpoint is a
    directory without any pickle: `<name>.safetensors` for each module, such as
    `model.safetensors`, under the plain names of its weights; `train.safetensors` and
    `state.json` for everything else; and `manifest.json`, with checksums of them all. It appears
    at once, when it is really on the disk, and only then are older ones dropped. If writing fails,
    the error ends the run, and the older checkpoints are as they were.

    A run that goes on from a checkpoint is the same run to the last bit, at the end of an epoch or
    in the middle. A broken checkpoint is passed over, loudly, for the newest good one. On several
    ranks, the first one writes and all of them load.

    Args:
        directory: Where this run's checkpoints lie; one run writes to it at a time.
        when: When to save. `state.save("why")` saves too.
        keep: Which to keep: `latest(2) | best(1, "val/loss") | every(10_000)`. The newest one
            always stays, and so does the one that `resume` names by its path.
        resume: True or `"latest"` to go on from the newest good checkpoint, or to start if there
            is none yet; `"best"` for the best one by the claim in `keep`; the path of one
            checkpoint to go on from no other. A run that carries on a given state loads nothing.

    Raises:
        TypeError: `keep` is not made of `latest`, `best` and `every`.
        ValueError: `resume="best"` without exactly one `best(...)` in `keep`.

    >>> Checkpoint("runs/digits", resume="best")
    Traceback (most recent call last):
    ...
    ValueError: resume='best' needs one best(...) in keep; it is latest(2)
    """

    directory: str | Path
    when: EventEnum | Trigger = Events.EPOCH_COMPLETED(last=True)
    keep: Keep = latest(2)
    resume: bool | str | Path | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if not isinstance(self.keep, Keep):
            raise TypeError(
                f"keep={self.keep!r}: needs latest(...), best(...), every(...), or some of them "
                "combined with |"
            )
        if Path(self.directory).is_file():
            raise NotADirectoryError(
                f"Checkpoint({str(self.directory)!r}) is a file; name a directory for checkpoints"
            )
        if self.resume == "best" and len(self.keep.bests) != 1:
            raise ValueError(f"resume='best' needs one best(...) in keep; it is {self.keep!r}")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Load before the run, ask for saves by the trigger, and save when asked."""
        engine.on(Events.LOADING)(self.load if self.resume else self.refuse_to_mix)
        engine.on(self.when, stage=Stage.REPORT)(self.ask)
        engine.on(Events.SAVING, stage=Stage.REPORT)(self.save)

    def ask(self, state: State[Any, Any]) -> None:
        """Ask for a save at the next commit point."""
        state.save(repr(Trigger.of(self.when)), by=self)

    def save(self, state: State[Any, Any]) -> None:
        """Write a checkpoint if anybody asked for one here; then drop what nobody claims."""
        reasons = dict.fromkeys(reason for reason, by in state.saves if by is None or by is self)
        if not reasons:
            return
        assert state.engine is not None
        self._warn_of_missing(state)
        with _on_all_ranks("take part in a checkpoint"):
            part = take_part(state)
        parts = ranks.gathered(part)
        with _on_all_ranks("write a checkpoint"):
            if ranks.rank() == 0:
                snapshot = take(state.engine.objects, parts)
                reason, keep = ", ".join(reasons), repr(self.keep)
                manifest = Manifest.about(state, reason, scalars(state.metrics), keep)
                saved = write(Path(self.directory), snapshot, manifest)
                logger.info("saved %s (%s)", saved.path, manifest.reason)
                self._prune(state, saved)

    def refuse_to_mix(self, state: State[Any, Any]) -> None:
        """Begin no new run over the checkpoints of another: they would be dropped one by one.

        Raises:
            FileExistsError: There are some.
        """
        fresh = state.iteration == 0 and state.position is None
        if fresh and (found := checkpoints(self.directory)):
            raise FileExistsError(
                f"{self.directory} holds checkpoints of an earlier run, such as "
                f"{found[-1].path.name}; pass resume=True to go on with it, or choose another "
                "directory for a new run; run(state=...) carries on a state at hand"
            )

    def load(self, state: State[Any, Any]) -> None:
        """Put the engine's objects and the state to where a checkpoint has them."""
        assert state.engine is not None
        if state.iteration > 0 or state.position is not None:
            return
        choice: tuple[Path | None, list[str]] = (None, [])
        with _on_all_ranks("find a checkpoint"):
            if ranks.rank() == 0:
                choice = self._choose()
        path, broken = ranks.gathered(choice)[0]
        if path is None:
            return
        with _on_all_ranks(f"load {path}"):
            snapshot = read(look_at(path))
            try:
                put_back(snapshot, state, state.engine.objects)
            except ValueError as error:
                raise ValueError(f"cannot load {path}: {error}") from error
        notes = state.recall(self, Notes)
        notes.broken = sorted({*notes.broken, *broken})
        logger.info("goes on from %s (epoch %d, iteration %d)", path, state.epoch, state.iteration)

    def _choose(self) -> tuple[Path | None, list[str]]:
        if self.resume not in (True, "latest", "best"):
            return named(Path(str(self.resume))).path, []
        found = checkpoints(self.directory)
        saved = found.best_by(self.keep.bests[0]) if self.resume == "best" else found.latest()
        return None if saved is None else saved.path, sorted(found.broken)

    def _prune(self, state: State[Any, Any], newest: Saved) -> None:
        notes = state.recall(self, Notes)
        notes.broken = [name for name in notes.broken if name != newest.path.name]
        found = [each for each in checkpoints(self.directory) if each.path.name not in notes.broken]
        kept = self.keep.kept(each.manifest for each in found)
        spared = Path(str(self.resume)).resolve()  # the script will ask for it again
        for each in found:
            if each.manifest.number not in kept and each.path.resolve() != spared:
                drop(each)

    def _warn_of_missing(self, state: State[Any, Any]) -> None:
        notes = state.recall(self, Notes)
        numbers = scalars(state.metrics)
        missing = sorted({best.metric for best in self.keep.bests} - numbers.keys())
        if missing and not notes.warned:
            notes.warned = True
            logger.warning(
                "%r goes by %s, which no handler has produced so far; the metrics that are numbers "
                "are %s. A checkpoint without it is never best",
                *(
                    self.keep,
                    ", ".join(map(repr, missing)),
                    ", ".join(map(repr, numbers)) or "none",
                ),
            )


@dataclass
class Notes:
    """What a run remembers of its checkpoints."""

    broken: list[str] = field(default_factory=list)
    """Those that were passed over: they count for nothing and are left alone."""
    warned: bool = False
    """True once it was said that a metric is missing."""


@contextmanager
def _on_all_ranks(task: str) -> Generator[None, None, None]:
    """What one rank raises inside is raised on all, so that none waits for it."""
    raised: Exception | None = None
    try:
        yield
    except Exception as error:
        raised = error
    if ranks.any_rank(raised is not None):
        raise raised or RuntimeError(f"another rank could not {task}; its own error says why")
