"""The memories of handlers and functions in a run, and how they are saved and put back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .contents import dump_memory, load_memory, object_types_in, refuse_moved
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
        refuse_shared(self.saved, objects or {})
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
