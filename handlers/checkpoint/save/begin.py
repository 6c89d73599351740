"""What is checked before a run begins; `read_back` checks its first save."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch.nn import Module
from torch.optim import Optimizer

from ....engine import Engine
from ....engine.modules import optimizers_in
from ....engine.state import walk
from ....engine.update import Update
from ..format import Keep
from ..weights import has_groups

if TYPE_CHECKING:
    from .recorder import SavingHandler

logger: logging.Logger = logging.getLogger("camshaft")

OnFailure = Literal["raise", "warn"]
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def check_arguments(handler: SavingHandler) -> None:
    """Check where a handler writes, how, and what it keeps."""
    directory, keep, retries = handler.directory, handler.keep, handler.retries
    if not isinstance(directory, str | PathLike):
        raise TypeError(
            f"directory={directory!r}: needs the path of a directory, such as 'runs/name'"
        )
    if not isinstance(keep, Keep):
        raise TypeError(
            f"keep={keep!r}: needs latest(...), best(...), every(...), or several of them "
            "combined with |"
        )
    if not isinstance(retries, int) or isinstance(retries, bool):
        raise TypeError(f"retries={retries!r}: needs a whole number")
    if retries < 0:
        raise ValueError(f"retries={retries}: needs a number that is not negative")
    if handler.on_failure not in ("raise", "warn"):
        raise ValueError(f"on_failure={handler.on_failure!r}: needs 'raise' or 'warn'")
    if ADDRESS.match(str(directory)):
        remedy = (
            f"add Mirror({str(directory)!r}) to the engine: it copies finished checkpoints "
            "there, and fetches them to an empty disk"
            if handler.is_mirrored
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
        raise ValueError(f"{error}; keep= is saved as this text, so use fewer claims") from error
    if Path(directory).is_file():
        raise NotADirectoryError(
            f"directory={str(directory)!r} is a file; name a directory for checkpoints"
        )


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
