"""Weights alone, for those who want the model and not the run."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...engine import ranks
from ...engine.engine import Engine
from ...engine.events import EventEnum, Events, Stage, Trigger
from ...engine.state.state import State
from .background import Failure
from .directory.catalogue import checkpoints
from .format.retention import Keep, latest
from .recorder import asked, check, recorder, warn_of_missing
from .snapshot import take

logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class Export:
    """Write the weights of one object, beside a `Checkpoint` or without one.

    An export is a directory like a checkpoint, written and kept in the same way, which holds
    `<object>.safetensors` alone, and a `state.json` and `manifest.json` that say what it is. An
    export that no claim would keep is not written, so `keep=best(1, ...)` leaves just the best one.
    No run can be resumed from an export, and `state.save("why")` makes none.

    Args:
        directory: Where the exports lie: one of their own, not that of a `Checkpoint`.
        object: The name of one of the engine's objects.
        when: When to export.
        keep: Which to keep: `latest(2) | best(1, "val/loss") | every(10_000)`.
        background: False to write on the thread that trains.
        retries: How often writing that failed is tried again.
        failure: `"raise"` to end the run, `"warn"` to go on without that export.

    Raises:
        TypeError: `keep` is not made of `latest`, `best` and `every`.
        ValueError: The directory is the address of an object store.

    >>> from camshaft.handlers import best
    >>> Export("runs/best", keep=best(1, "val/accuracy", mode="max")).object
    'model'
    """

    directory: str | Path
    object: str = "model"
    when: EventEnum | Trigger = Events.EPOCH_COMPLETED(last=True)
    keep: Keep = latest(1)
    background: bool = True
    retries: int = 3
    failure: Failure = "raise"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check(self)

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Lock before the run, ask by the trigger, and export when asked."""
        engine.on(Events.LOADING)(self.open)
        engine.on(Events.STARTED)(self.warn_of_others)
        engine.on(self.when, stage=Stage.REPORT)(self.ask)
        engine.on(Events.SAVING, stage=Stage.REPORT)(self.save)
        # First of all, so that whoever else is called at the end can read what was written.
        engine.on(Events.CLOSED, stage=Stage.MEASURE)(self.close)

    def open(self, state: State[Any, Any]) -> None:
        """Keep the directory for this run.

        Raises:
            BlockingIOError: Another run writes to it.
            ValueError: The engine has no such object.
        """
        if self.object not in state.engine.objects:
            known = ", ".join(map(repr, state.engine.objects)) or "none"
            raise ValueError(
                f"Export(object={self.object!r}): needs one of the engine's objects: {known}"
            )
        recorder(self, state).open()

    def warn_of_others(self, state: State[Any, Any]) -> None:
        """Say that a new run's exports will compete with those of another."""
        fresh = state.iteration == 0 and state.control.position is None
        if fresh and ranks.rank() == 0 and (found := checkpoints(self.directory)):
            logger.warning(
                "%s holds exports of an earlier run, such as %s; those of this one are kept or "
                "dropped together with them. Choose another directory if that is not meant",
                *(self.directory, found[-1].path.name),
            )

    def ask(self, state: State[Any, Any]) -> None:
        """Ask for an export at the next commit point."""
        state.save(repr(Trigger.of(self.when)), by=self)

    def save(self, state: State[Any, Any]) -> None:
        """Copy the weights if anybody asked here; the copy is written in the background.

        Raises:
            OSError: The export before could not be written.
        """
        if not (reason := asked(self, state, of_all=False)):
            return
        own = recorder(self, state)
        own.open()
        warn_of_missing(self, state)
        with ranks.on_all_ranks("export weights"):
            own.wait()
            if ranks.rank() == 0:
                engine = state.engine
                exported = take({self.object: engine.objects[self.object]}, [], engine.lent)
                own.record(state, exported, reason, only_claimed=True)

    def wait(self, state: State[Any, Any]) -> None:
        """Wait until the last export is on the disk: for handlers that read it during the run.

        Raises:
            OSError: It could not be written.
        """
        recorder(self, state).wait()

    def close(self, state: State[Any, Any]) -> None:
        """Wait until the last export is on the disk, and let others have the directory.

        Raises:
            OSError: It could not be written.
        """
        recorder(self, state).close(state)
