"""What handlers and functions remember of a run, and how it is saved and put back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from .generators import capture_generators, restore_generators
from .tensors import devices_of, on_devices, refuse_graphs


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
    collected: dict[str, Any] = field(default_factory=dict)
    """What handlers gathered of a whole epoch, such as predictions, by name; not saved."""

    def make(
        self, name: str, make: Callable[[], Any], *, saved: bool, objects: Iterable[Any] = ()
    ) -> Any:
        """Make a memory, or put a loaded one back; its tensors go where `objects` compute."""
        is_loaded = saved and name in self.loaded
        made = self._put_back(name, make, objects) if is_loaded else make()
        (self.saved if saved else self.unsaved)[name] = made
        return made

    def _put_back(self, name: str, make: Callable[[], Any], objects: Iterable[Any]) -> Any:
        rng = capture_generators()  # what `make` draws was drawn before the save
        made = make()
        restore_generators(rng)
        content = on_devices(self.loaded[name], self.devices.get(name, {}), objects)
        try:
            load_memory(made, content)
        except ValueError as error:
            raise ValueError(
                f"what {name} remembered does not fit what it remembers now: {error}. Resume "
                "with the code that saved it, or let it begin anew: "
                f"Checkpoint(..., override=[{name!r}])"
            ) from error
        del self.loaded[name]
        return made

    def state_dict(self) -> dict[str, Any]:
        """The memories that checkpoints hold, as plain values."""
        found = dict(self.loaded)
        for name, memory in self.saved.items():
            try:
                found[name] = dump_memory(memory)
                refuse_graphs(found[name])
            except TypeError as error:
                raise TypeError(f"what {name} remembers cannot be saved: {error}") from error
        return found

    def devices_of(self, memories: dict[str, Any]) -> dict[str, dict[str, str]]:
        """Where the tensors of saved memories are, by name and by place."""
        found = {name: devices_of(memories[name]) for name in memories if name not in self.loaded}
        return {name: places for name, places in (self.devices | found).items() if places}

    def load_state_dict(
        self, saved: dict[str, Any], devices: dict[str, dict[str, str]] | None = None
    ) -> None:
        """Keep saved memories, and where their tensors were, until they are recalled."""
        self.saved.clear()
        self.loaded = dict(saved)
        self.devices = {name: dict(places) for name, places in (devices or {}).items()}


def dump_memory(memory: Any) -> Any:
    """The content of a memory: its `state_dict`, its dataclass fields, or the dict itself."""
    _refuse_states(memory)
    if hasattr(memory, "state_dict"):
        return memory.state_dict()
    if isinstance(memory, dict):
        return {name: _inner(value) for name, value in memory.items()}
    if is_dataclass(memory) and not isinstance(memory, type):
        return {item.name: _inner(getattr(memory, item.name)) for item in fields(memory)}
    raise TypeError(
        f"{type(memory).__name__} cannot be saved: a memory needs to be a dataclass, a dict, or "
        "have state_dict() and load_state_dict(); for what need not be saved, pass saved=False"
    )


def load_memory(memory: Any, saved: Any) -> None:
    """Put what `dump_memory` took back into a memory, in place."""
    if hasattr(memory, "load_state_dict"):
        memory.load_state_dict(saved)
        return
    if not isinstance(saved, dict):
        raise ValueError(f"it was saved as a {type(saved).__name__}, not by fields")
    if isinstance(memory, dict):
        memory.update({name: _put(memory.get(name), value) for name, value in saved.items()})
        return
    own = {item.name for item in fields(memory)} if is_dataclass(memory) else set[str]()
    if own != saved.keys():
        raise ValueError(
            f"fields only in the checkpoint: {_listed(saved.keys() - own)}; "
            f"fields only in {type(memory).__name__}: {_listed(own - saved.keys())}"
        )
    for name, value in saved.items():
        setattr(memory, name, _put(getattr(memory, name), value))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names))) or "none"


def _refuse_states(value: Any) -> None:
    if isinstance(getattr(value, "memory", None), HandlerMemory):  # only a State has one
        raise TypeError(
            "it holds the State of a run, which holds all memories; handlers are handed the state "
            "with each call, so keep only what is needed of it"
        )


def _inner(value: Any) -> Any:
    _refuse_states(value)
    return value.state_dict() if hasattr(value, "state_dict") else value


def _put(current: Any, saved: Any) -> Any:
    if not hasattr(current, "load_state_dict"):
        return saved
    current.load_state_dict(saved)
    return current
