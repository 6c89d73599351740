"""The values inside memories: tensors to put back on devices, and values that cannot resume."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

from .values import PLAIN, Found, is_any_array, is_any_tensor, mapped, walk


def devices_of(value: Any) -> dict[str, str]:
    """By place: the devices of the tensors in a value, except tensors on the CPU."""
    found = ((place, str(tensor.device)) for place, tensor in _tensors(value))
    return {place: device for place, device in found if device != "cpu"}


def on_devices(value: Any, saved: Mapping[str, str], objects: Iterable[Any]) -> Any:
    """The value, with the tensors at these places back on their devices.

    A tensor goes to its saved device if a module among the objects is there; else, for example on
    another machine, to a module's device of the same kind; else it stays on the CPU.
    """
    if not saved:
        return value
    modules: list[Any] = [o for o in objects if callable(getattr(o, "parameters", None))]
    own = {str(each.device): each.device for module in modules for each in module.parameters()}
    kinds = {_kind(name): device for name, device in reversed(own.items())}
    chosen = {
        place: own.get(device) or kinds.get(_kind(device)) or "cpu"
        for place, device in saved.items()
    }
    places = iter([place for place, _ in _tensors(value)])
    moved: dict[Any, Any] = {}  # a tensor that occurs twice stays one tensor

    def put(tensor: Any) -> Any:
        if (device := chosen.get(next(places))) is None:
            return tensor
        if (id(tensor), device) not in moved:
            moved[id(tensor), device] = tensor.to(device)
        return moved[id(tensor), device]

    return with_tensors(value, put)


def refuse_graphs(value: Any) -> None:
    """Refuse tensors that a gradient flows through: a checkpoint holds values alone."""
    for place, tensor in _tensors(value):
        if tensor.requires_grad:
            raise TypeError(
                f"the tensor {place!r} requires a gradient, and a checkpoint holds values without "
                "their graph; remember what its .detach() gives, and put parameters into the "
                "engine's objects"
            )


def refuse_shared(
    memories: Mapping[str, Any], contents: Mapping[str, Any], objects: Mapping[str, Any]
) -> None:
    """Refuse values in these memories, by name, that are shared and that a resume would separate.

    They are a list, dict, set or array that occurs twice, two views of the same storage, and a
    tensor that shares its storage with a module or an optimizer among `objects`. The same tensor
    may occur twice. Objects with state are not searched: their own methods put them back.

    Raises:
        TypeError: There is such a value, or a tensor that would come back as something else.
    """
    inside = [each for name, content in contents.items() for each in walk(content, name)]
    _refuse_lost(inside)
    seen: dict[int, str] = {}
    kinds = list, dict, set, deque
    changeable = [e for e in inside if isinstance(e[1], kinds) or is_any_array(e[1])]
    for place, value in (*memories.items(), *changeable):
        if (first := seen.setdefault(id(value), place)) is not place:
            raise TypeError(
                f"{place} and {first} are one {type(value).__name__}, and after a resume they "
                "would be two: a change of one would no longer be a change of the other. Remember "
                "a copy in one of both places"
            )
    _refuse_views(inside)
    tensors: dict[int, str] = {}
    for place, value in inside:
        for storage in _storages(value) if is_any_tensor(value) else ():
            tensors.setdefault(storage, place)
    for name, each in objects.items() if tensors else ():
        _refuse_followers(tensors, name, each)


def _refuse_lost(inside: Iterable[Found]) -> None:
    """Refuse parameters, and tensors that are elements of sets or keys of dicts."""
    for place, value in inside:
        if is_any_tensor(value) and isinstance(value, sys.modules["torch"].nn.Parameter):
            raise TypeError(
                f"{place} is a Parameter, which would come back as a tensor; put parameters into "
                "the engine's objects, and remember what .detach() gives"
            )
        if isinstance(value, dict | set | frozenset) and any(map(is_any_tensor, value)):
            raise TypeError(
                f"{place} has tensors as elements or keys, and a resume makes new tensors, which "
                "equal none of these; remember them in a list"
            )


def _refuse_views(inside: Iterable[Found]) -> None:
    """Refuse tensors and arrays of which one has numbers of another, unless they are one view."""
    views: dict[Hashable, tuple[str, Any]] = {}
    for place, value in inside:
        for each in (
            (value,) if is_any_array(value) else _dense(value) if is_any_tensor(value) else ()
        ):
            shown = each if is_any_array(each) else _by_address(each)
            kind = str(each.dtype), each.shape, shown.strides, shown.ctypes.data
            views.setdefault(id(each) if is_any_array(each) else kind, (place, shown))
    if len(views) < 2:
        return
    import numpy

    home: Any = getattr(numpy.lib, "array_utils", numpy)  # since NumPy 2, and before
    bounds = home.byte_bounds
    before: list[tuple[int, str, Any]] = []
    taken = [(*bounds(each), place, each) for place, each in views.values() if each.size]
    for begin, end, place, one in sorted(taken, key=itemgetter(0)):
        before = [each for each in before if each[0] > begin]
        if other := next((name for _, name, each in before if numpy.shares_memory(one, each)), ""):
            raise TypeError(
                f"{place} and {other} are views of the same numbers, and after a resume they would "
                "be apart; remember a copy (.clone() or .copy()) in one of both places"
            )
        before.append((end, place, one))


def _by_address(tensor: Any) -> Any:
    """An array at the address of a dense tensor, on any device: for its bounds, not to be read."""
    import numpy

    size = tensor.element_size()
    interface = {
        "version": 3,
        "data": (tensor.data_ptr(), True),
        "shape": tuple(tensor.shape),
        "strides": tuple(step * size for step in tensor.stride()),
        "typestr": f"|V{size}",
    }
    return numpy.asarray(SimpleNamespace(__array_interface__=interface))


def _refuse_followers(tensors: Mapping[int, str], name: str, thing: Any) -> None:
    """Refuse tensors, given by storage, that share their storage with a module or an optimizer."""
    torch, kind, what = sys.modules["torch"], "a weight of the object", "that weight"
    own: Iterable[Any] = ()
    if isinstance(thing, torch.optim.Optimizer):
        kind, what = "the state of the optimizer", "that state"
        own = (each for _, each in _tensors([*thing.state.values(), thing.param_groups]))
    elif isinstance(thing, torch.nn.Module):
        own = (*thing.parameters(), *thing.buffers())
    for each in own:
        if place := next((tensors[key] for key in _storages(each) if key in tensors), None):
            raise TypeError(
                f"{place} shares its numbers with {kind} {name!r}, and after a resume it would no "
                f"longer follow {what}; remember what .detach().clone() gives"
            )


def is_usual(value: Any) -> bool:
    """True if a checkpoint holds this value as it is, apart from what a dict or list holds."""
    if not is_any_tensor(value):
        return type(value) in (dict, list, tuple, *PLAIN)
    is_dense = str(value.layout) == "torch.strided" and not (value.is_meta or value.is_quantized)
    return type(value) is sys.modules["torch"].Tensor and is_dense and not value.is_complex()


def _tensors(value: Any) -> Iterator[Found]:
    """The tensors in a value, each with a place of its own."""
    times = Counter[str]()
    for place, each in walk(value):
        if is_any_tensor(each):
            times[place] += 1  # {"a.b": ...} and {"a": {"b": ...}}
            yield place if times[place] == 1 else f"{place}~{times[place]}", each


def with_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with each tensor replaced by `change(tensor)`, called in their order."""
    return mapped(value, lambda each: change(each) if is_any_tensor(each) else each)


def _dense(tensor: Any) -> Iterator[Any]:
    """The dense tensors that hold the numbers of this one; nothing shares those of a sparse one."""
    if hasattr(tensor, "__tensor_flatten__"):  # it is made of others, as a DTensor is
        inner = (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])
        for each in filter(is_any_tensor, inner):
            yield from _dense(each)
    elif str(tensor.layout) == "torch.strided" and not tensor.is_meta:
        yield tensor


def _storages(tensor: Any) -> Iterator[int]:
    """The addresses of the storages that hold a tensor's numbers."""
    return filter(None, (int(each.untyped_storage().data_ptr()) for each in _dense(tensor)))


def _kind(device: str) -> str:
    return device.partition(":")[0]
