"""The tensors in plain values: saved without a graph, and put back on their devices."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

PLAIN = frozenset({type(None), bool, int, float, str, bytes})
"""Types of values that hold no tensors: a memory may hold a million of them."""
DEEPEST = 200
"""Values that nest deeper, or contain themselves, are refused when they are encoded."""


def refuse_graphs(value: Any) -> None:
    """Refuse tensors that a gradient flows through: a checkpoint holds values alone.

    Raises:
        TypeError: There is one.
    """
    for path, tensor in _tensors(value):
        if tensor.requires_grad:
            raise TypeError(
                f"the tensor {path!r} requires a gradient, and a checkpoint holds values without "
                "their graph; remember what its .detach() gives, and put parameters into the "
                "engine's objects"
            )


def devices_of(value: Any) -> dict[str, str]:
    """The devices of the tensors in a value, by their places; those on the CPU are left out."""
    found = ((path, str(tensor.device)) for path, tensor in _tensors(value))
    return {path: device for path, device in found if device != "cpu"}


def on_devices(value: Any, saved: Mapping[str, str], objects: Iterable[Any]) -> Any:
    """The value, with the tensors at these places back on their devices.

    That is the saved device where a module among the objects is on it, else, as on another
    machine, the device of the same kind that a module is on; else the tensor stays on the CPU.
    """
    own = {str(device): device for each in objects for device in _devices_of(each)}
    kinds = {_kind(name): device for name, device in reversed(own.items())}
    chosen = {
        path: own.get(device) or kinds.get(_kind(device)) or "cpu" for path, device in saved.items()
    }
    if not chosen:
        return value
    moved: dict[Any, Any] = {}  # a tensor that is there twice stays one tensor
    for path, tensor in _tensors(value):
        if path in chosen and (id(tensor), chosen[path]) not in moved:
            moved[id(tensor), chosen[path]] = tensor.to(chosen[path])
    found = [moved.get((id(each), chosen.get(path)), each) for path, each in _tensors(value)]
    return _with(value, iter(found))


def _tensors(value: Any) -> Iterator[tuple[str, Any]]:
    """The tensors in dicts, lists and tuples, each with a place of its own, as `"hidden.0"`."""
    times = Counter[str]()
    for path, tensor in _leaves(value, ""):
        times[path] += 1  # {"a.b": ...} and {"a": {"b": ...}}
        yield path if times[path] == 1 else f"{path}~{times[path]}", tensor


def _leaves(value: Any, path: str, depth: int = DEEPEST) -> Iterator[tuple[str, Any]]:
    if _is_tensor(value):
        yield path, value
    for key, item in _items(value) if depth else ():
        if type(item) not in PLAIN:
            yield from _leaves(item, place_inside(path, key), depth - 1)


def _with(value: Any, tensors: Iterator[Any]) -> Any:
    """The value with these tensors in the places of its own, in their order."""
    if _is_tensor(value):
        return next(tensors)
    if isinstance(value, dict):
        return type(value)({key: _with(item, tensors) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return type(value)([_with(item, tensors) for item in value])
    return value


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple) else ()


def _devices_of(thing: Any) -> list[Any]:
    """The devices of a module's parameters; of anything else, none."""
    found: Any = thing.parameters() if callable(getattr(thing, "parameters", None)) else ()
    return [each.device for each in found]


def _kind(device: str) -> str:
    return device.partition(":")[0]


def _is_tensor(value: Any) -> bool:
    torch: Any = sys.modules.get("torch")  # not loaded: the value is no tensor
    return torch is not None and isinstance(value, torch.Tensor)


def place_inside(path: str, key: object) -> str:
    """The place of what is inside another place, under this key or number."""
    try:
        return f"{path}.{key}" if path else str(key)
    except ValueError:  # Python makes no text of an integer of thousands of digits
        return f"{path}.<{type(key).__name__}>"
