"""What the checkpoints of a run hold: its things by identity, their tensors by address."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from .. import modules
from ..signals import PACKAGE, package_of
from ..state import State, once_a_type, walk
from .reached import WIDEST, attributes_of


@once_a_type
def is_stateful(kind: type) -> bool:
    """True for a class whose objects a checkpoint can hold; false for data that gives batches."""
    if not (hasattr(kind, "state_dict") and hasattr(kind, "load_state_dict")):
        return False
    if package_of(kind) == PACKAGE:  # such as a state
        return False
    return modules.is_kind_of_module(kind) or not hasattr(kind, "__iter__")


def things_in(state: State[Any, Any]) -> set[int]:
    """The ids of what a checkpoint holds: objects, their parts, handlers, objects in memories."""
    objects, handlers = state.engine.objects, state.engine.handlers
    memories = [m for m in state.memory.saved.values() if hasattr(type(m), "saved_objects")]
    kept = [*objects.values(), *(each for memory in memories for each in memory.saved_objects())]
    inside = [each for outer in kept for each in insides_of(outer)]
    others = [each for each in objects.values() if not modules.is_module(each)]
    held = addresses_in(others) if any(map(modules.modules_of, others)) else set[int]()
    found = [*kept, *handlers.values(), *(e for e in inside if not modules.is_module(e))]
    for outer in objects.values():
        for model in modules.modules_of(outer):
            if outer is not model and not held.issuperset(map(address_of, model.parameters())):
                continue  # the state_dict of a script's object may leave out a network
            for module in model.modules():
                found += [module, *module.parameters(recurse=False)]
                found += module.buffers(recurse=False)
    return set(map(id, found))


def addresses_in(things: Iterable[Any]) -> set[int]:
    """The addresses of the tensors in the `state_dict` of these objects."""
    tensors = (each for thing in things for _, each in walk(state_of(thing)))
    return {address_of(each) for each in tensors if hasattr(each, "untyped_storage")}


def address_of(tensor: Any) -> int:
    """The address of a tensor's numbers; its identity if it has none."""
    try:
        return int(tensor.untyped_storage().data_ptr()) or id(tensor)
    except Exception:  # such as a parameter without a shape, or a shard
        return id(tensor)


def state_of(thing: Any) -> Any:
    """What an object saves; nothing if it cannot save now."""
    with suppress(Exception):  # a method of the script's own
        return thing.state_dict()
    return None


def numbers_in(thing: Any) -> dict[Any, Any]:
    """A few numbers of each tensor: of a module, by identity and type; else by its place."""
    if modules.is_module(thing):
        return {
            (id(e), e.dtype): modules.sample(e) for e in (*thing.parameters(), *thing.buffers())
        }
    found = ((place, each) for place, each in walk(state_of(thing)))
    return {place: modules.sample(e) for place, e in found if hasattr(e, "untyped_storage")}


def insides_of(thing: Any) -> list[Any]:
    """What attributes of a script's own object hold; for an object of torch, inner schedulers."""
    if modules.is_module(thing) or package_of(type(thing)) == "torch":
        return list(vars(thing).get("_schedulers", ()))
    own = list(attributes_of(thing).values())
    several = [e for e in own if type(e) in (dict, list, tuple) and len(e) <= WIDEST]
    return own + [each for e in several for each in (e.values() if isinstance(e, dict) else e)]
