"""Tries at the first save of a run whether optimizers of unknown classes can be restored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ....engine import ranks
from ....engine.modules import all_modules
from ....engine.state import capture_generators, restore_generators
from ..format import Encoder, decode

LARGEST = 2**26
"""The most bytes of a copy, without the weights, which it shares."""


@dataclass(eq=False)
class RoundTrip:
    """Loads the first save's states into copies of the optimizers as the script made them.

    The classes of torch are known to be right. A copy shares the parameters, so it is small: an
    optimizer has no state before its first step.
    """

    copies: dict[str, Any] = field(default_factory=dict)
    is_due: bool = False
    """True on all ranks, or on none."""

    @classmethod
    def of(cls, objects: Mapping[str, Any]) -> RoundTrip:
        """Copy the optimizers of unknown classes."""
        unknown = {name: each for name, each in objects.items() if _is_unknown(each)}
        copies = {}
        for name, each in unknown.items():
            with suppress(Exception):  # what cannot be copied is not tried
                copies[name] = _copied(each, _shared(objects, each))
                copies[name].state_dict()
        return cls(copies, bool(unknown))

    def check(self, objects: Mapping[str, Any]) -> None:
        """Refuse an optimizer whose saved state `load_state_dict` does not restore in the copy.

        Raises:
            TypeError: After loading, the copy has another state.
        """
        copies, self.copies, self.is_due = self.copies, {}, False
        rng = capture_generators()
        with ranks.on_all_ranks("put back what it saves"):
            for name, copy in copies.items():
                _try(name, objects[name], copy)
        restore_generators(rng)


def _is_unknown(each: Any) -> bool:
    return isinstance(each, Optimizer) and not type(each).__module__.startswith("torch.")


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
    held = {place: type(each).__name__ for place, each in _held(own)}
    if held:
        named = ", ".join(f"{place} (a {each})" for place, each in held.items())
        advice += f"; it holds {named}. Or name these in objects= in the place of the {kind}"
    try:
        copy.load_state_dict(state)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise TypeError(
            f"{begin}its load_state_dict() fails with its own state_dict() ({said}). {advice}"
        ) from error
    twins = {"": copy, **dict(_held(copy))}
    for place, each in {"": own, **dict(_held(own))}.items():
        there = twins[place].state_dict() if place in twins else None
        if (at := _differs(each.state_dict(), there)) is not None:
            where = ".".join(filter(None, (place, at)))
            raise TypeError(f"{begin}after loading, {where or 'it'} is not what it was. {advice}")


def _held(own: Any) -> Iterator[tuple[str, Any]]:
    """The parts of an object that have a state of their own, by their places in it."""
    for key, value in vars(own).items():
        inner = {f"{key}[{n!r}]": each for n, each in _items(value)}
        for place, each in {key: value, **inner}.items():
            has_state = hasattr(each, "state_dict") and hasattr(each, "load_state_dict")
            if has_state and not isinstance(each, Module | type) and each is not own:
                yield place, each


def _items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return [*value.items()]
    return [*enumerate(value)] if isinstance(value, list | tuple) else []


def _shared(objects: Mapping[str, Any], own: Any) -> dict[int, Any]:
    """The modules and parameters that a copy shares with the original, by identity."""
    modules = all_modules([*objects.values(), own, *(inner for _, inner in _held(own))])
    shared: list[Any] = [*modules, *(each for m in modules for each in m.parameters())]
    for each in (own, *(inner for _, inner in _held(own))):
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
    for _, each in _held(own):
        if isinstance(each, Optimizer) and id(each) not in memo:
            _copied(each, memo)
    vars(copy).update({key: deepcopy(value, memo) for key, value in vars(own).items()})
    return copy


def _differs(own: Any, other: Any, place: str = "") -> str | None:
    """Where two states differ; None if they are equal."""
    if isinstance(own, Tensor) or isinstance(other, Tensor):
        return None if _same(own, other) else place
    if isinstance(own, Mapping) and isinstance(other, Mapping):
        if own.keys() != other.keys():
            odd = min(own.keys() ^ other.keys(), key=str)
            return f"{place}.{odd}" if place else str(odd)
    elif not (isinstance(own, list | tuple) and isinstance(other, list | tuple)):
        equal: Any = own == other
        is_equal = bool(equal.all() if hasattr(equal, "all") else equal)
        return None if is_equal or (own != own and other != other) else place
    elif len(own) != len(other):
        return place
    pairs = dict(_items(other))
    found = (
        _differs(each, pairs[key], f"{place}.{key}" if place else str(key))
        for key, each in _items(own)
    )
    return next((each for each in found if each is not None), None)


def _same(own: Any, other: Any) -> bool:
    if not (isinstance(own, Tensor) and isinstance(other, Tensor)) or own.dtype != other.dtype:
        return False
    if own is other or own.shape != other.shape:
        return own is other
    return bool(((own == other) | ((own != own) & (other != other))).all())  # NaN equals NaN
