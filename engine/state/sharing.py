"""What memories share: after a resume, each has a copy of its own, so a change of one is lost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .contents import plain_entries
from .tensors import DEEPEST, PLAIN, place_inside

Found = tuple[str, Any]


def refuse_shared(memories: Mapping[str, Any], objects: Mapping[str, Any]) -> None:
    """Refuse what a resume would tear apart, in these memories by name.

    That is a list, dict, set or array that is there twice, a tensor that is a part of another one,
    and one that shares its numbers with a module or an optimizer among `objects`. The same tensor
    may be there twice. What other objects keep is put back by their own methods, their own affair.

    Raises:
        TypeError: There is such a thing, or a tensor that would come back as another type.
    """
    seen: dict[int, str] = {}
    tensors: dict[int, list[Found]] = {}
    arrays: list[Found] = []
    for place, value in _found(memories):
        if _is_tensor(value):
            _refuse_kind(place, value)
            for part in _dense(value):
                if address := _storage(part):
                    tensors.setdefault(address, []).append((place, part))
            continue
        if (first := seen.setdefault(id(value), place)) is not place:
            raise TypeError(
                f"{place} and {first} are one {type(value).__name__}, and after a resume they "
                "would be two: a change of one would no longer be a change of the other. Remember "
                "a copy in one of both places"
            )
        if _is_array(value):
            arrays.append((place, value))
    for found in tensors.values():
        _refuse_views(found, _overlap)
    if arrays:
        _refuse_views(arrays, sys.modules["numpy"].shares_memory)
    _refuse_weights(tensors, objects)


def _found(memories: Mapping[str, Any]) -> Iterator[Found]:
    """The memories and the containers, arrays and tensors in their plain content, by place."""
    yield from memories.items()
    for name, memory in memories.items():
        yield from _walk(plain_entries(memory), name)


def _walk(value: Any, place: str, depth: int = DEEPEST) -> Iterator[Found]:
    if not depth:
        return
    items: Iterable[tuple[Any, Any]]
    loose: Iterable[Any]
    if isinstance(value, dict):
        items, loose = value.items(), value
    else:
        items = enumerate(value) if isinstance(value, list | tuple) else ()
        loose = value if isinstance(value, set | frozenset) else ()
    if any(map(_is_tensor, loose)):
        raise TypeError(
            f"{place} has tensors as elements or keys, and a resume makes new tensors, which "
            "equal none of these; remember them in a list"
        )
    for key, item in items:
        if type(item) in PLAIN:
            continue
        where = place_inside(place, key)
        if isinstance(item, list | dict | set) or _is_tensor(item) or _is_array(item):
            yield where, item  # before what is inside: it may contain itself
        yield from _walk(item, where, depth - 1)


def _refuse_kind(place: str, tensor: Any) -> None:
    if isinstance(tensor, sys.modules["torch"].nn.Parameter):
        raise TypeError(
            f"{place} is a Parameter, which would come back as a tensor; put parameters into the "
            "engine's objects, and remember what .detach() gives"
        )


def _refuse_views(found: list[Found], share: Callable[[Any, Any], bool]) -> None:
    """Refuse two views of the same numbers."""
    before: list[Found] = []
    for place, one in sorted(found, key=lambda each: _extent(each[1])):
        begin, _ = _extent(one)
        before = [each for each in before if _extent(each[1])[1] > begin]
        if other := next((name for name, each in before if share(one, each)), None):
            raise TypeError(
                f"{place} and {other} are views of the same numbers, and after a resume they "
                "would be apart; remember a copy (.clone() or .copy()) in one of both places"
            )
        before.append((place, one))


def _refuse_weights(tensors: Mapping[int, list[Found]], objects: Mapping[str, Any]) -> None:
    if not tensors:
        return
    torch = sys.modules["torch"]
    for name, each in objects.items():
        if isinstance(each, torch.optim.Optimizer):
            _refuse_moments(tensors, name, each)
        if not isinstance(each, torch.nn.Module):
            continue
        for weight in (*each.parameters(), *each.buffers()):
            if place := _place(tensors, weight):
                raise TypeError(
                    f"{place} shares its numbers with a weight of the object {name!r}, and "
                    "after a resume it would no longer follow that weight; remember what "
                    ".detach().clone() gives"
                )


def _refuse_moments(tensors: Mapping[int, list[Found]], name: str, optimizer: Any) -> None:
    for _, each in _walk([*optimizer.state.values(), optimizer.param_groups], name):
        if _is_tensor(each) and (place := _place(tensors, each)):
            raise TypeError(
                f"{place} shares its numbers with the state of the optimizer {name!r}, and "
                "after a resume it would no longer follow that state; remember what "
                ".detach().clone() gives"
            )


def _overlap(one: Any, other: Any) -> bool:
    """True if a number is in both tensors, unless they are the same view."""
    kinds = [(t.dtype, t.shape, t.stride(), t.storage_offset()) for t in (one, other)]
    if kinds[0] == kinds[1]:
        return False
    if one.dtype != other.dtype or 0 in (*one.stride(), *other.stride()):
        return True
    torch, size = sys.modules["torch"], one.element_size()
    extents = (*_extent(one), *_extent(other))
    taken = torch.zeros((max(extents) - min(extents)) // size, dtype=torch.bool)
    views = [
        taken.as_strided(each.shape, each.stride(), (each.data_ptr() - min(extents)) // size)
        for each in (one, other)
    ]
    views[0].fill_(True)
    return bool(views[1].any())


def _extent(value: Any) -> tuple[int, int]:
    """Where in memory the numbers of a tensor or an array begin and end, in bytes."""
    if _is_array(value):
        begin, size, steps = value.__array_interface__["data"][0], value.itemsize, value.strides
    else:
        begin, size = value.data_ptr(), value.element_size()
        steps = [step * size for step in value.stride()]
    if 0 in value.shape:
        return begin, begin
    widths = [(count - 1) * step for count, step in zip(value.shape, steps, strict=True)]
    begin += sum(width for width in widths if width < 0)
    return begin, begin + sum(map(abs, widths)) + size


def _place(tensors: Mapping[int, list[Found]], other: Any) -> str:
    """The place of the first of these tensors that is in one storage with another; or nothing."""
    found = (tensors[each] for each in map(_storage, _dense(other)) if each in tensors)
    return next((place for (place, _), *_ in found), "")


def _dense(tensor: Any) -> Iterator[Any]:
    """The dense tensors that hold the numbers of this one; nothing shares those of a sparse one."""
    if hasattr(tensor, "__tensor_flatten__"):  # it is made of others, as a DTensor is
        parts = (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])
        for part in filter(_is_tensor, parts):
            yield from _dense(part)
    elif str(tensor.layout) == "torch.strided" and not tensor.is_meta:
        yield tensor


def _storage(tensor: Any) -> int:
    """The address of a dense tensor's numbers; 0 if it has none."""
    return int(tensor.untyped_storage().data_ptr())


def _is_array(value: Any) -> bool:
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _is_tensor(value: Any) -> bool:
    torch: Any = sys.modules.get("torch")  # not loaded: the value is no tensor
    return torch is not None and isinstance(value, torch.Tensor)
