"""A run's first save, read back as a resume does: what that would refuse is refused at once.

So is a later save of tensors with other names, types or shapes. Nothing is read from the disk.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ....engine import listed
from ....engine.modules import all_modules, parameters_of
from ....engine.state import (
    State,
    capture_generators,
    has_state,
    is_plain_tensor,
    items_of,
    restore_generators,
    same_states,
    walk,
)
from ..format import decode, flattened, is_quantized
from ..load import (
    add_group,
    counts_of_groups,
    form_needed,
    groups_in,
    groups_to_add,
    load_optimizer,
    reshapes,
)
from ..weights import hidden

logger: logging.Logger = logging.getLogger("camshaft")

LARGEST_COPY = 2**26
"""The most bytes of an optimizer's copy, without the weights, which it shares."""
NO_START = "no start of this script could resume from this checkpoint"
OF_CHANGES = (
    "\nThe run has changed what the script makes. Make it so before the run (all parameters in the "
    "optimizer, some frozen), or let what holds parameters that grow load them by itself: "
    "docs/guides/exact-resume.md"
)
LEAST_ADDRESS = 2**24
"""The least number that is taken for the address of an object."""
LONGEST_LIST = 2**16
"""The most elements of a list or dict that is looked into; a longer one is data."""
NUMBER = re.compile(r"\d{8,20}")


class ReadBack:
    """What the script made before the run: the same script makes it again when it resumes."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        """Note the forms of the objects, and copy optimizers of unknown classes."""
        self._forms = {name: form_needed(each) for name, each in objects.items()}
        self._copies = dict[str, Any]()
        for name, each in objects.items():
            if not isinstance(each, Optimizer) or type(each).__module__.startswith("torch."):
                continue
            kept = [e for state in each.state.values() for _, e in _leaves(state)]
            if sum(getattr(e, "nbytes", 0) for e in kept) <= LARGEST_COPY:
                with suppress(Exception):  # an optimizer that cannot be copied is not tested
                    self._copies[name] = _copied(each, _shared(objects, each))
                    self._copies[name].state_dict()
        self._made = counts_of_groups(objects)
        """By optimizer: how many groups the script makes before the run, and not at STARTED."""
        self._is_resumed = False
        self.form: object = None
        """The names, types and shapes of the tensors that were read back last."""

    def start(self, state: State[Any, Any]) -> None:
        """After STARTED: its functions add their groups at each start, and a resume does not."""
        self._is_resumed = state.control.resumed_from is not None
        if not self._is_resumed:
            now = counts_of_groups(state.engine.objects)
            self._made = {n: count for n, count in self._made.items() if now.get(n) == count}

    def check(
        self,
        objects: Mapping[str, Any],
        saved: Mapping[str, Any],
        tensors: Mapping[str, Mapping[str, Tensor]],
    ) -> None:
        """Read back what is being saved, which has another form than the last save.

        `saved` is by object, as in `state.json`; `tensors` are by file and name.
        """
        states = {n: decode(e["content"], tensors.get(e["file"], {})) for n, e in saved.items()}
        if odd := [*_odd(objects, states)]:
            raise ValueError(f"{NO_START}:\n  " + "\n  ".join(odd))
        are_fixed = not any(map(reshapes, objects.values()))
        lines = list[str]()
        for name, each in objects.items():
            if (are_fixed or isinstance(each, Module)) and (form := self._forms.get(name)):
                added = list[dict[str, Any]]()
                if isinstance(each, Optimizer) and (made := self._made.get(name)):
                    added = _added(name, each, made, states[name], saved[name], objects)
                lines += form.mismatches(name, states[name], added)
        if lines:
            said = f"{NO_START}:\n  " + "\n  ".join(lines) + OF_CHANGES
            if self.form is None and not self._is_resumed:
                raise ValueError(said)  # else the run has passed such a save before
            logger.warning(said)
            self._forms.clear()  # once is enough
        rng = capture_generators()
        for name, each in objects.items():
            if not isinstance(each, Module) and not type(each).__module__.startswith("torch."):
                if name in self._copies:
                    self._add_groups(name, each, states[name], saved[name], objects)
                _try(name, objects, states[name], self._copies.get(name))
                if states[name].get("state", True):  # else it has made no step
                    self._copies.pop(name, None)
        restore_generators(rng)

    def _add_groups(self, name: str, own: Any, state: Any, saved: Any, objects: Any) -> None:
        """Give a copy the groups that the run has added; without them it is not tested."""
        copy, count = self._copies[name], len(own.param_groups)
        if len(copy.param_groups) < count and name in self._made:
            names = saved.get("parameters", {})
            added = groups_to_add(len(copy.param_groups), state, names, objects)
            for live, group in zip(own.param_groups[-len(added) :], added, strict=False):
                add_group(copy, {**live, **group})
        if len(copy.param_groups) != count:
            del self._copies[name]


def _added(
    name: str, own: Optimizer, made: int, state: Any, saved: Mapping[str, Any], objects: Any
) -> list[dict[str, Any]]:
    """The groups that the run has added to an optimizer, and that a resume adds again.

    A function, or another value that no checkpoint holds, is told of if the group has its own.
    """
    added = groups_to_add(made, state, saved.get("parameters", {}), objects)
    pairs = zip(own.param_groups[made:], added, strict=False)
    unsaved = ((key, group[key]) for group, kept in pairs for key in group.keys() - kept.keys())
    if lost := {key for key, value in unsaved if value is not own.defaults.get(key)}:
        logger.warning(
            "a group that the run has added to %r has a %s, which a checkpoint does not hold and a "
            "resume does not put back: give the optimizer this group before the run",
            *(name, listed(lost)),
        )
    return added


def _odd(objects: Mapping[str, Any], states: Mapping[str, Any]) -> Iterator[str]:
    """A line for each object whose state_dict() loses something."""
    trained = set[int]()
    for name, each in objects.items():
        if isinstance(each, Optimizer):
            own = [*map(id, parameters_of(each))]
            trained.update(own)
            is_torchs = type(each).state_dict is Optimizer.state_dict
            for key in (
                k for k in each.state if is_torchs and isinstance(k, int) and k in range(len(own))
            ):
                yield f"the state of {name!r} has a key {key}, as state_dict() calls a parameter"
    for name, each in objects.items():
        if isinstance(each, Module) and (lost := hidden(each, trained)):
            yield f"the state_dict() of {name!r} leaves out {lost[0]!r}, which is trained"


def _try(name: str, objects: Mapping[str, Any], state: Any, copy: Any) -> None:
    """Refuse an object that does not put back its state where addresses are others."""
    own, kind = objects[name], type(objects[name]).__name__
    shared, found = _shared(objects, own), set[int]()
    places = {*shared, *map(id, getattr(own, "param_groups", ()))}
    places |= {e.data_ptr() for e in shared.values() if is_plain_tensor(e)}
    other = _elsewhere(state, {each for each in places if each >= LEAST_ADDRESS}, found)
    if copy is None and found:
        memo = {id(e): _other_values(e) for _, e in _leaves(vars(own)) if isinstance(e, Tensor)}
        with suppress(Exception):
            copy = _copied(own, memo | shared)
    if copy is None:
        return
    begin = f"engine.objects[{name!r}] is a {kind}, and a checkpoint could not put it back: "
    advice = (
        f"Let {kind}.state_dict() give the state of all that it holds, and "
        f"{kind}.load_state_dict() put that back"
    )
    if found:
        advice += (
            " in another process, where each id(...) and data_ptr() is another number: name "
            "parameters by their places in a list"
        )
    parts, twins = {"": own, **_inner(own)}, {"": copy, **_inner(copy)}
    if inner := [f"{place} (a {type(each).__name__})" for place, each in parts.items() if place]:
        advice += (
            f"; it holds {', '.join(inner)}. Or name these in objects= in the place of the {kind}"
        )
    try:
        load_optimizer(copy, other)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise TypeError(
            f"{begin}its load_state_dict() fails with its own state_dict() ({said}). {advice}"
        ) from error
    for place, each in parts.items():
        here = dict(_leaves(each.state_dict()))
        there = dict(_leaves(twins[place].state_dict())) if place in twins else {}
        for at in here | there:
            if not (at in here and at in there and same_states(here[at], there[at])):
                where = ".".join(filter(None, (place, at))) or "it"
                raise TypeError(f"{begin}after loading, {where} is not what it was. {advice}")
    if [*groups_in(own).values()] != [*groups_in(copy).values()]:
        raise TypeError(
            f"{begin}its state holds its groups themselves, and after loading copies of them, "
            f"which a schedule does not reach. {advice}"
        )


def _inner(own: Any) -> dict[str, Any]:
    """The parts of an object that have a state of their own, by their places in it."""
    held = [*getattr(own, "__dict__", {}).items()]
    held += [(f"{key}[{n!r}]", each) for key, value in held for n, each in _items(value)]
    left_out = Module, type
    return {k: v for k, v in held if has_state(v) and not isinstance(v, left_out) and v is not own}


def _items(value: Any) -> list[tuple[Any, Any]]:
    """What a state may hold further values in."""
    if is_quantized(value):
        return [*flattened(value)[0].items()]
    items = items_of(value)
    return [] if items is None or len(value) > LONGEST_LIST else [*items]


def _leaves(value: Any) -> Iterator[tuple[str, Any]]:
    """The values in a state that hold no others, by their places; empty containers too."""
    inside = walk(value, plain=True, inside=_items, depth=50)
    return ((place, each) for place, each in inside if not _items(each))


def _shared(objects: Mapping[str, Any], own: Any) -> dict[int, Any]:
    """The modules and parameters that a copy shares with the original, by identity."""
    parts = [own, *_inner(own).values()]
    modules = all_modules([*objects.values(), *parts])
    shared: list[Any] = [*modules, *(each for m in modules for each in m.parameters())]
    shared += [p for each in parts if hasattr(each, "param_groups") for p in parameters_of(each)]
    values = (each for _, each in _leaves(getattr(own, "__dict__", {})))
    shared += [each for each in values if isinstance(each, Tensor) and each.requires_grad]
    return {id(each): each for each in shared}


def _copied(own: Any, memo: dict[int, Any]) -> Any:
    """A copy with all attributes; an optimizer's own `__deepcopy__` leaves out some."""
    copy = memo[id(own)] = object.__new__(type(own))
    for each in _inner(own).values():
        if isinstance(each, Optimizer) and id(each) not in memo:
            _copied(each, memo)
    vars(copy).update({key: deepcopy(value, memo) for key, value in vars(own).items()})
    return copy


def _other_values(tensor: Tensor) -> Tensor:
    if tensor.is_floating_point() or tensor.is_complex():
        return torch.full_like(tensor, torch.nan)
    return tensor.logical_not().to(tensor.dtype)


def _elsewhere(value: Any, places: set[int], found: set[int]) -> Any:
    """A state with other numbers for these addresses, as in another process."""
    if type(value) is int and value in places:
        found.add(value)
        return value + 1  # an object's address is even
    if type(value) is str and any(int(number) in places for number in NUMBER.findall(value)):
        return NUMBER.sub(lambda n: str(_elsewhere(int(n.group()), places, found)), value)
    if isinstance(value, dict):
        pairs = [[_elsewhere(each, places, found) for each in pair] for pair in value.items()]
        return type(value)(pairs)
    kind, several = type(value), cast(Any, value)
    if kind in (list, tuple, set, frozenset) and len(several) < LONGEST_LIST:
        return kind(_elsewhere(each, places, found) for each in several)
    return value
