"""The content of a memory: read for a checkpoint, and put back into an equal memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, KeysView, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any


def dump_memory(memory: Any) -> Any:
    """The content of a memory: its `state_dict`, its dataclass fields, or the entries of a dict.

    Raises:
        TypeError: The content does not suffice to make a new memory equal to this one.
    """
    own = {} if has_state(memory) else entries(memory)
    if any(map(_is_state, (memory, *own.values()))):
        raise TypeError(
            "it holds the State of a run, which holds all memories; handlers are handed the state "
            "with each call, so keep only what is needed of it"
        )
    if has_state(memory):
        return memory.state_dict()
    if not isinstance(memory, dict) and (unset := _names(memory) - own.keys()):
        raise TypeError(f"the fields {_listed(unset)} have no value; give them one, such as None")
    if others := _attributes(memory) - ({*own} if is_dataclass(memory) else set()):
        raise TypeError(
            f"{type(memory).__name__} has attributes besides its content, {_listed(others)}, which "
            "would be lost; make them fields of a dataclass, or give it state_dict() and "
            "load_state_dict()"
        )
    return {name: each.state_dict() if has_state(each) else each for name, each in own.items()}


def load_memory(memory: Any, saved: Any) -> None:
    """Put the content that `dump_memory` returned back into a memory, in place.

    Raises:
        ValueError: The memory has other fields.
    """
    if has_state(memory):
        memory.load_state_dict(saved)
        return
    if not isinstance(saved, dict):
        raise ValueError(f"it was saved as a {type(saved).__name__}, not by fields")
    own = entries(memory)
    if isinstance(memory, dict):
        # Not by the object's own methods: Counter.update adds, and a user's class may do anything.
        kind: Any = OrderedDict if isinstance(memory, OrderedDict) else dict
        kind.clear(memory)
        for name, value in saved.items():
            kind.__setitem__(memory, name, _put(own.get(name), value))
        return
    if (names := _names(memory)) != saved.keys():
        raise ValueError(
            f"fields only in the checkpoint: {_listed(saved.keys() - names)}; "
            f"fields only in {type(memory).__name__}: {_listed(names - saved.keys())}"
        )
    for name, value in saved.items():
        object.__setattr__(memory, name, _put(own.get(name), value))  # it may be frozen


def entries(memory: Any) -> dict[Any, Any]:
    """The entries of a dict, or the fields of a dataclass that have a value, by name.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(memory, dict):
        return dict(memory)
    if is_dataclass(memory) and not isinstance(memory, type):
        return {name: getattr(memory, name) for name in _names(memory) if hasattr(memory, name)}
    raise TypeError(
        f"{type(memory).__name__} cannot be saved: a memory needs to be a dataclass, a dict, or "
        "have state_dict() and load_state_dict(); for what need not be saved, pass saved=False"
    )


def plain_entries(memory: Any) -> dict[Any, Any]:
    """The content of a memory, without the objects that load their own state."""
    if has_state(memory):
        return {}
    return {name: each for name, each in entries(memory).items() if not has_state(each)}


def object_types_in(memory: Any) -> dict[Any, type]:
    """By name: the types of the objects in a memory that load their own state in place."""
    if has_state(memory) or not (isinstance(memory, dict) or is_dataclass(memory)):
        return {}
    return {name: type(each) for name, each in entries(memory).items() if has_state(each)}


def refuse_moved(memory: Any, made: Mapping[Any, type]) -> None:
    """Refuse a memory whose objects with state differ, by place or type, from those it began with.

    Raises:
        TypeError: A resume would put a state back as a dict, or into another object.
    """
    now = object_types_in(memory)
    for name in () if has_state(memory) else entries(memory):
        here, there = now.get(name), made.get(name)
        if here is there or (here and there and issubclass(there, here)):
            continue  # a lazy module turns into its base class
        is_now, was = (f"a {each.__name__}" if each else "plain" for each in (here, there))
        raise TypeError(
            f"{name!r} is {is_now}, and was {was} when the memory was made: an object with "
            "state_dict() is put back into the object that a new memory has at its place. Make it "
            "together with the memory, or remember its state_dict() instead"
        )


def has_state(value: Any) -> bool:
    """True for an object that has `state_dict` and `load_state_dict`; false for a class."""
    return (
        hasattr(value, "state_dict")
        and hasattr(value, "load_state_dict")
        and not isinstance(value, type)
    )


def _put(current: Any, saved: Any) -> Any:
    if not has_state(current):
        return saved
    current.load_state_dict(saved)
    return current


def _is_state(value: Any) -> bool:
    """True for the State of a run; this file cannot import its class, which imports this file."""
    return hasattr(getattr(value, "memory", None), "unsaved")


def _names(memory: Any) -> KeysView[str]:
    """The names of a dataclass's fields, in their order; for anything else, none."""
    names = [item.name for item in fields(memory)] if is_dataclass(memory) else []
    return dict.fromkeys(names).keys()


def _attributes(memory: Any) -> set[str]:
    """The names of a memory's attributes, without its cached properties."""
    names = getattr(memory, "__dict__", {}).keys()
    return {n for n in names if not isinstance(getattr(type(memory), n, None), cached_property)}


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(sorted(map(repr, names))) or "none"
