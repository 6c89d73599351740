"""What a handler of checkpoints is given, and what is checked before a run begins."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ....engine import Engine, ranks
from ....engine.update import Update
from ..directory import checkpoints, set_aside
from ..format import Keep, keep_of
from .writer import OnFailure

logger = logging.getLogger("camshaft")

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


@dataclass(frozen=True)
class Destination:
    """Where a handler's checkpoints are written, how, and which of them are kept."""

    directory: str | Path
    keep: Keep
    background: bool
    retries: int
    on_failure: OnFailure
    is_mirrored: bool = True
    """True for checkpoints, which `Mirror` copies; it copies no exports."""

    def __post_init__(self) -> None:
        if not isinstance(self.directory, str | PathLike):
            raise TypeError(
                f"directory={self.directory!r}: needs the path of a directory, such as 'runs/name'"
            )
        if not isinstance(self.keep, Keep):
            raise TypeError(
                f"keep={self.keep!r}: needs latest(...), best(...), every(...), or several of them "
                "combined with |"
            )
        if not isinstance(self.retries, int) or isinstance(self.retries, bool):
            raise TypeError(f"retries={self.retries!r}: needs a whole number")
        if self.retries < 0:
            raise ValueError(f"retries={self.retries}: needs a number that is not negative")
        if self.on_failure not in ("raise", "warn"):
            raise ValueError(f"on_failure={self.on_failure!r}: needs 'raise' or 'warn'")
        if ADDRESS.match(str(self.directory)):
            remedy = (
                f"add Mirror({str(self.directory)!r}) to the engine: it copies finished "
                "checkpoints there, and fetches them to an empty disk"
                if self.is_mirrored
                else "copy the export there when the run is done: Mirror copies checkpoints alone"
            )
            raise ValueError(
                f"directory={str(self.directory)!r}: needs a directory on a file system. A whole "
                "checkpoint rests on fsync and on an atomic rename, which object stores do not "
                f"have. Write to a local disk or a mounted file system, and {remedy}"
            )
        _check_text(self.keep)
        if Path(self.directory).is_file():
            raise NotADirectoryError(
                f"directory={str(self.directory)!r} is a file; name a directory for checkpoints"
            )


def _check_text(keep: Keep) -> None:
    """Refuse claims that `camshaft inspect` could not read from a manifest."""
    try:
        keep_of(repr(keep))
    except ValueError as error:
        raise ValueError(f"{error}; keep= is saved as this text, so use fewer claims") from error


def refuse_unsaveable(objects: Mapping[str, Any]) -> None:
    """Refuse objects that have no state to save.

    Raises:
        TypeError: One of them cannot be saved.
    """
    for name, each in objects.items():
        if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
            raise TypeError(
                f"engine.objects[{name!r}] is a {type(each).__name__}, which a checkpoint "
                "cannot hold: it needs state_dict() and load_state_dict()"
            )


def refuse_to_forget(engine: Engine[Any, Any]) -> None:
    """Refuse a run whose optimizer, and so its weights, would not be saved.

    Raises:
        ValueError: The optimizer of an `Update` is not among the engine's objects.
    """
    known = list(map(id, engine.objects.values()))
    for each in engine.handlers.values():
        if isinstance(each, Update) and id(each.optimizer) not in known:
            raise ValueError(
                f"{type(each.optimizer).__name__}, which an Update steps, is not among "
                "the engine's objects, so neither the optimizer nor its weights would be saved: "
                'Engine(..., objects={"model": model, "optimizer": optimizer})'
            )
    if not engine.objects:
        logger.warning(
            "Checkpoint saves the state of the run and no model: the engine has no objects; "
            'Engine(..., objects={"model": model, "optimizer": optimizer}) names what a run changes'
        )


def refuse_second_resume(directories: Sequence[str]) -> None:
    """Refuse a run that several handlers resume: their order of attachment would decide.

    Raises:
        ValueError: There is more than one directory to resume from.
    """
    if len(directories) > 1:
        listed = ", ".join(f"Checkpoint({each!r})" for each in directories)
        raise ValueError(
            f"{len(directories)} handlers have resume=: {listed}. A run goes on from one "
            "checkpoint, so leave resume= to one of them; the others need none to go on saving to "
            "their directories beside it"
        )


def refuse_to_mix(directory: str | Path) -> None:
    """Refuse to start a new run in a directory that holds another run's checkpoints.

    Raises:
        FileExistsError: The directory holds checkpoints, which the new run would drop.
    """
    if found := checkpoints(directory):
        raise FileExistsError(
            f"{directory} holds checkpoints of an earlier run, such as "
            f"{found[-1].path.name}; pass resume=True to go on with it, start_over=True to "
            "move them aside, or choose another directory for a new run; run(state=...) "
            "carries on a state at hand"
        )


def start_over(directory: str | Path) -> None:
    """Move the checkpoints of an earlier run out of the way of the new one."""
    with ranks.on_all_ranks("start over"):
        if ranks.rank() == 0 and (place := set_aside(Path(directory))) is not None:
            logger.warning("starts over: the checkpoints of an earlier run are in %s", place)
