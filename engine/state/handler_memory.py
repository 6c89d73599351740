"""The memories of handlers and functions in a run, and how they are saved and put back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, KeysView, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any

from ..names import listed
from .generators import capture_generators, restore_generators
from .memory_tree import devices_of, on_devices, refuse_graphs, refuse_shared


@dataclass(slots=True, eq=False)
class HandlerMemory:
    """The memories of a run, by the names of handlers and functions: see `State.recall`."""

    saved: dict[str, Any] = field(default_factory=dict)
    """Memories that checkpoints hold."""
    unsaved: dict[str, Any] = field(default_factory=dict)
    """Memories that have no place in a checkpoint, such as open files."""
    loaded: dict[str, Any] = field(default_factory=dict)
    """Loaded memories that have not been recalled yet."""
    devices: dict[str, dict[str, str]] = field(default_factory=dict)
    """The devices of the tensors in loaded memories, by name and by place."""
    made: dict[str, dict[Any, type]] = field(default_factory=dict)
    """By name and place: the types of the objects with state in each saved memory when made."""
    names: dict[int, str] = field(default_factory=dict)
    """By `id`: the names of handlers that were looked up in the current run."""
    collected: dict[str, Any] = field(default_factory=dict)
    """By name: data that handlers gathered over an epoch, such as predictions; not saved."""

    def make(
        self, name: str, make: Callable[[], Any], *, saved: bool, objects: Iterable[Any] = ()
    ) -> Any:
        """Make a memory, or put a loaded one back with its tensors on the devices of `objects`."""
        is_loaded = saved and name in self.loaded
        made = make() if not is_loaded else self._put_back(name, make, objects)
        if saved and not is_loaded:
            self.made[name] = object_types_in(made)
        (self.saved if saved else self.unsaved)[name] = made
        return made

    def _put_back(self, name: str, make: Callable[[], Any], objects: Iterable[Any]) -> Any:
        rng = capture_generators()  # `make` drew its random numbers before the save already
        made = make()
        restore_generators(rng)
        self.made[name] = object_types_in(made)
        content = on_devices(self.loaded[name], self.devices.get(name, {}), objects)
        try:
            load_memory(made, content)
        except Exception as error:
            said = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
            raise ValueError(
                f"what {name} remembered does not fit what it remembers now: {said}. Resume "
                "with the code that saved it, or let it begin anew: "
                f"Checkpoint(..., reset=[{name!r}])"
            ) from error
        del self.loaded[name]
        return made

    def state_dict(self, objects: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The memories that checkpoints hold, as plain values; `objects` are the engine's.

        Raises:
            TypeError: A resumed run could not make an equal memory.
        """
        found = dict(self.loaded)
        for name, memory in self.saved.items():
            try:
                found[name] = dump_memory(memory)
                refuse_moved(memory, self.made.get(name, {}))
                refuse_graphs(found[name])
            except TypeError as error:
                raise TypeError(f"what {name} remembers cannot be saved: {error}") from error
        contents = {
            name: {n: each for n, each in entries(memory).items() if not has_state(each)}
            for name, memory in self.saved.items()
            if not has_state(memory)
        }
        refuse_shared(self.saved, contents, objects or {})
        return found

    def devices_of(self, memories: dict[str, Any]) -> dict[str, dict[str, str]]:
        """The devices of the tensors in saved memories, by name and by place."""
        found = {name: devices_of(memories[name]) for name in memories if name not in self.loaded}
        return {name: places for name, places in (self.devices | found).items() if places}

    def load_state_dict(self, saved: dict[str, Any], devices: dict[str, dict[str, str]]) -> None:
        """Keep saved memories, and the devices of their tensors, until they are recalled."""
        self.saved.clear()
        self.loaded = dict(saved)
        self.devices = {name: dict(places) for name, places in devices.items()}


def dump_memory(memory: Any) -> Any:
    """The content of a memory: its `state_dict`, its dataclass fields, or the entries of a dict.

    Raises:
        TypeError: The content does not suffice to make a new memory equal to this one.
    """
    own = {} if has_state(memory) else entries(memory)
    # By what a State has: its file imports this one.
    if any(hasattr(getattr(e, "memory", None), "unsaved") for e in (memory, *own.values())):
        raise TypeError(
            "it holds the State of a run, which holds all memories; handlers are handed the state "
            "with each call, so keep only what is needed of it"
        )
    if has_state(memory):
        return memory.state_dict()
    if not isinstance(memory, dict) and (unset := _names(memory) - own.keys()):
        raise TypeError(f"the fields {listed(unset)} have no value; give them one, such as None")
    if others := _attributes(memory) - ({*own} if is_dataclass(memory) else set()):
        raise TypeError(
            f"{type(memory).__name__} has attributes besides its content, {listed(others)}, which "
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
            f"fields only in the checkpoint: {listed(saved.keys() - names)}; "
            f"fields only in {type(memory).__name__}: {listed(names - saved.keys())}"
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


def _names(memory: Any) -> KeysView[str]:
    """The names of a dataclass's fields, in their order; for anything else, none."""
    names = [item.name for item in fields(memory)] if is_dataclass(memory) else []
    return dict.fromkeys(names).keys()


def _attributes(memory: Any) -> set[str]:
    """The names of a memory's attributes, without its cached properties."""
    names = getattr(memory, "__dict__", {}).keys()
    return {n for n in names if not isinstance(getattr(type(memory), n, None), cached_property)}
