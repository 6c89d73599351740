"""What is checked before a run begins, and at its first save."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ....engine import Engine, ranks
from ....engine.modules import all_modules, optimizers_in
from ....engine.state import capture_generators, restore_generators
from ....engine.update import Update
from ..directory import checkpoints, set_aside
from ..format import Encoder, Keep, decode, flattened, is_quantized, keep_of

if TYPE_CHECKING:
    from ..checkpoint import Checkpoint
    from ..export import Export
    from ..local import Local

logger: logging.Logger = logging.getLogger("camshaft")

OnFailure = Literal["raise", "warn"]
LARGEST = 2**26
"""The most bytes of an optimizer's copy, without the weights, which it shares."""
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def check_arguments(handler: Checkpoint | Export | Local, *, is_mirrored: bool = True) -> None:
    """Check where a handler writes, how, and what it keeps; `Mirror` copies no exports.

    Raises:
        TypeError: An argument is of another type.
        ValueError: An argument has a value that it cannot have.
        NotADirectoryError: The directory is a file.
    """
    directory, keep, retries = handler.directory, handler.keep, handler.retries
    if not isinstance(directory, str | PathLike):
        raise TypeError(
            f"directory={directory!r}: needs the path of a directory, such as 'runs/name'"
        )
    if not isinstance(keep, Keep):
        raise TypeError(
            f"keep={keep!r}: needs latest(...), best(...), every(...), or several of them combined "
            "with |"
        )
    if not isinstance(retries, int) or isinstance(retries, bool):
        raise TypeError(f"retries={retries!r}: needs a whole number")
    if retries < 0:
        raise ValueError(f"retries={retries}: needs a number that is not negative")
    if handler.on_failure not in ("raise", "warn"):
        raise ValueError(f"on_failure={handler.on_failure!r}: needs 'raise' or 'warn'")
    if ADDRESS.match(str(directory)):
        remedy = (
            f"add Mirror({str(directory)!r}) to the engine: it copies finished checkpoints there, "
            "and fetches them to an empty disk"
            if is_mirrored
            else "copy the export there when the run is done: Mirror copies checkpoints alone"
        )
        raise ValueError(
            f"directory={str(directory)!r}: needs a directory on a file system. A whole checkpoint "
            "rests on fsync and on an atomic rename, which object stores do not have. Write to a "
            f"local disk or a mounted file system, and {remedy}"
        )
    try:
        keep_of(repr(keep))  # `camshaft inspect` reads it from a manifest
    except ValueError as error:
        raise ValueError(f"{error}; keep= is saved as this text, so use fewer claims") from error
    if Path(directory).is_file():
        raise NotADirectoryError(
            f"directory={str(directory)!r} is a file; name a directory for checkpoints"
        )


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
        own = optimizers_in(each.optimizer) if isinstance(each, Update) else ()
        if left := [one for one in own if id(one) not in known]:
            raise ValueError(
                f"{type(left[0]).__name__}, which an Update steps, is not among "
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


def copies_to_try(objects: Mapping[str, Any]) -> dict[str, Any] | None:
    """Copies of the optimizers of unknown classes as the script made them; None without any.

    The classes of torch are known to be right. A copy shares the parameters, so it is small: an
    optimizer has no state before its first step.
    """
    unknown = {
        name: each
        for name, each in objects.items()
        if isinstance(each, Optimizer) and not type(each).__module__.startswith("torch.")
    }
    copies = {}
    for name, each in unknown.items():
        with suppress(Exception):  # an optimizer that cannot be copied is not tested
            copies[name] = _copied(each, _shared(objects, each))
            copies[name].state_dict()
    return copies if unknown else None


def try_to_put_back(objects: Mapping[str, Any], copies: Mapping[str, Any]) -> None:
    """Refuse an optimizer whose saved state `load_state_dict` does not restore in its copy.

    All ranks have to call this.

    Raises:
        TypeError: After loading, the copy has another state.
    """
    rng = capture_generators()
    with ranks.on_all_ranks("put back what it saves"):
        for name, copy in copies.items():
            _try(name, objects[name], copy)
    restore_generators(rng)


def _try(name: str, own: Any, copy: Any) -> None:
    encoder = Encoder()
    state = own.state_dict()
    try:
        state = decode(encoder.encode(state), encoder.tensors)
    except (TypeError, ValueError):
        return  # the save reports it
    kind = type(own).__name__
    begin = f"engine.objects[{name!r}] is a {kind}, and a checkpoint could not put it back: "
    advice = (
        f"Let {kind}.state_dict() give the state of all that it holds, and "
        f"{kind}.load_state_dict() put that back"
    )
    if inner := [f"{place} (a {type(each).__name__})" for place, each in _inner(own)]:
        advice += (
            f"; it holds {', '.join(inner)}. Or name these in objects= in the place of the {kind}"
        )
    try:
        copy.load_state_dict(state)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise TypeError(
            f"{begin}its load_state_dict() fails with its own state_dict() ({said}). {advice}"
        ) from error
    twins = {"": copy, **dict(_inner(copy))}
    for place, each in {"": own, **dict(_inner(own))}.items():
        there = twins[place].state_dict() if place in twins else None
        if (at := _differs(each.state_dict(), there)) is not None:
            where = ".".join(filter(None, (place, at)))
            raise TypeError(f"{begin}after loading, {where or 'it'} is not what it was. {advice}")


def _inner(own: Any) -> Iterator[tuple[str, Any]]:
    """The parts of an object that have a state of their own, by their places in it."""
    for key, value in vars(own).items():
        elements = {f"{key}[{n!r}]": each for n, each in _items(value)}
        for place, each in {key: value, **elements}.items():
            has_state = hasattr(each, "state_dict") and hasattr(each, "load_state_dict")
            if has_state and not isinstance(each, Module | type) and each is not own:
                yield place, each


def _items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return [*value.items()]
    if is_quantized(value):
        return [*flattened(value)[0].items()]
    return [*enumerate(value)] if isinstance(value, list | tuple) else []


def _shared(objects: Mapping[str, Any], own: Any) -> dict[int, Any]:
    """The modules and parameters that a copy shares with the original, by identity."""
    modules = all_modules([*objects.values(), own, *(inner for _, inner in _inner(own))])
    shared: list[Any] = [*modules, *(each for m in modules for each in m.parameters())]
    for each in (own, *(inner for _, inner in _inner(own))):
        groups = getattr(each, "param_groups", [])
        shared += [parameter for group in groups for parameter in group["params"]]
    return {id(each): each for each in shared}


def _copied(own: Any, memo: dict[int, Any]) -> Any:
    """A copy with all attributes; an optimizer's own `__deepcopy__` leaves out some.

    Raises:
        MemoryError: The copy would take more than `LARGEST` bytes.
    """
    tensors = [t for s in getattr(own, "state", {}).values() for _, t in _items(s)]
    if sum(each.nbytes for each in tensors if isinstance(each, Tensor)) > LARGEST:
        raise MemoryError
    copy = memo[id(own)] = object.__new__(type(own))
    for _, each in _inner(own):
        if isinstance(each, Optimizer) and id(each) not in memo:
            _copied(each, memo)
    vars(copy).update({key: deepcopy(value, memo) for key, value in vars(own).items()})
    return copy


def _differs(own: Any, other: Any) -> str | None:
    """The first place at which two states differ; None if they are equal."""
    here, there = dict(_leaves(own)), dict(_leaves(other))
    for place in here | there:
        if place not in here or place not in there or not _same(here[place], there[place]):
            return place
    return None


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """The values in a state that hold no others, by their places; empty containers too."""
    items = _items(value)
    if not items:
        yield place, value
    for key, each in items:
        yield from _leaves(each, f"{place}.{key}" if place else str(key))


def _same(own: Any, other: Any) -> bool:
    if isinstance(own, Tensor) or isinstance(other, Tensor):
        if not (isinstance(own, Tensor) and isinstance(other, Tensor)):
            return False
        if own is other or own.dtype != other.dtype or own.shape != other.shape:
            return own is other
    equal: Any = (own == other) | ((own != own) & (other != other))  # NaN equals NaN
    return bool(equal.all() if hasattr(equal, "all") else equal)
