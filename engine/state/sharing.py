"""What memories share: after a resume, each has a copy of its own, so a change of one is lost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .tensors import inside

Found = tuple[str, Any]


def refuse_shared(memories: Mapping[str, Mapping[Any, Any]], objects: Mapping[str, Any]) -> None:
    """Refuse what a resume would tear apart, in these plain contents of memories, by name.

    That is a list, dict, set or array that is there twice, a tensor that is a part of another one,
    and one that shares its numbers with a module among `objects`. The same tensor may be there
    twice.

    Raises:
        TypeError: There is such a thing, or a tensor that would come back as another type.
    """
    seen: dict[int, Found] = {}
    tensors: dict[int, list[Found]] = {}
    arrays: dict[int, list[Found]] = {}
    for place, value in (found for name in memories for found in _walk(memories[name], name)):
        if id(value) in seen and not _is_tensor(value):
            kind, first = type(value).__name__, seen[id(value)][0]
            raise TypeError(
                f"{place} and {first} are one {kind}, and after a resume they would be two: "
                "a change of one would no longer be a change of the other. Remember a copy in one "
                "of both places"
            )
        seen[id(value)] = place, value
        if _is_tensor(value):
            _refuse_kind(place, value)
            tensors.setdefault(_storage(value), []).append((place, value))
        elif _is_array(value):
            arrays.setdefault(_owner(value), []).append((place, value))
    _refuse_views(tensors, _overlap)
    _refuse_views(arrays, lambda one, other: bool(sys.modules["numpy"].shares_memory(one, other)))
    _refuse_weights(tensors, objects if tensors else {})


def _walk(value: Any, place: str) -> Iterator[Found]:
    """The containers, arrays and tensors in a value, each with its place."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _inside(item, inside(place, key))
            if _is_tensor(key):
                yield from _inside({key}, inside(place, key))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _inside(item, inside(place, number))
    elif isinstance(value, set | frozenset) and any(map(_is_tensor, value)):
        raise TypeError(
            f"{place} has tensors as elements or keys, and a resume makes new tensors, which "
            "equal none of these; remember them in a list"
        )


def _inside(item: Any, place: str) -> Iterator[Found]:
    if isinstance(item, list | dict | set) or _is_tensor(item) or _is_array(item):
        yield place, item  # before what is inside: it may contain itself
    yield from _walk(item, place)


def _refuse_kind(place: str, tensor: Any) -> None:
    if isinstance(tensor, sys.modules["torch"].nn.Parameter):
        raise TypeError(
            f"{place} is a Parameter, which would come back as a tensor; put parameters into the "
            "engine's objects, and remember what .detach() gives"
        )


def _refuse_views(groups: Mapping[int, list[Found]], share: Callable[[Any, Any], bool]) -> None:
    for found in groups.values():
        for number, (place, one) in enumerate(found):
            if other := next((name for name, each in found[:number] if share(one, each)), None):
                raise TypeError(
                    f"{place} and {other} are views of the same numbers, and after a resume they "
                    "would be apart; remember a copy (.clone() or .copy()) in one of both places"
                )


def _refuse_weights(tensors: Mapping[int, list[Found]], objects: Mapping[str, Any]) -> None:
    for name, each in objects.items():
        if not isinstance(each, sys.modules["torch"].nn.Module):
            continue
        for weight in (*each.parameters(), *each.buffers()):
            if found := tensors.get(_storage(weight)):
                raise TypeError(
                    f"{found[0][0]} shares its numbers with a weight of the object {name!r}, and "
                    "after a resume it would no longer follow that weight; remember what "
                    ".detach().clone() gives"
                )


def _overlap(one: Any, other: Any) -> bool:
    """True if a number is in both tensors of one storage, unless they are the same view."""
    kinds = [(t.dtype, t.shape, t.stride(), t.storage_offset()) for t in (one, other)]
    if kinds[0] == kinds[1] or not (one.numel() and other.numel()):
        return False
    (begin, end), (first, last) = _extent(one), _extent(other)
    if end <= first or last <= begin:
        return False
    if one.dtype != other.dtype or 0 in (*one.stride(), *other.stride()):
        return True
    start, size = one.storage_offset(), one.element_size()
    low, high = min(begin, first) // size, max(end, last) // size
    taken = sys.modules["torch"].zeros(high - low, dtype=sys.modules["torch"].bool)
    taken.as_strided(one.shape, one.stride(), start - low).fill_(True)
    return bool(taken.as_strided(other.shape, other.stride(), other.storage_offset() - low).any())


def _extent(tensor: Any) -> tuple[int, int]:
    """Where in its storage a tensor begins and ends, in bytes."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    length = 1 + sum((count - 1) * step for count, step in steps)
    begin: int = tensor.storage_offset() * tensor.element_size()
    return begin, begin + length * tensor.element_size()


def _storage(tensor: Any) -> int:
    """The address of a dense tensor's numbers; of any other tensor, one of its own."""
    is_dense = str(tensor.layout) == "torch.strided" and not tensor.is_meta and tensor.numel()
    return int(tensor.untyped_storage().data_ptr()) if is_dense else -id(tensor)


def _owner(array: Any) -> int:
    """The identity of the array to which the numbers of a view belong."""
    while _is_array(array.base):
        array = array.base
    return id(array)


def _is_array(value: Any) -> bool:
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _is_tensor(value: Any) -> bool:
    torch: Any = sys.modules.get("torch")  # not loaded: the value is no tensor
    return torch is not None and isinstance(value, torch.Tensor)
