"""Nested values: one walk over them by place, one map, and one comparison."""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

PLAIN = frozenset({type(None), bool, int, float, str, bytes})
"""Types of values that hold no others; a memory may hold a million, so a walk skips them."""
DEEPEST = 200
"""Values that nest deeper, or contain themselves, are refused when they are encoded."""
SEQUENCES = (list, tuple, deque)
FACTORIES: dict[str, Any] = {e.__name__: e for e in (int, float, bool, str, list, dict, set, deque)}
"""What a `defaultdict` that a checkpoint holds may make for new keys."""
Found = tuple[str, Any]
"""A place, such as `hidden.0`, and the value there."""


@dataclass(frozen=True, slots=True)
class Named:
    """Stands, in a checkpoint, for an object that the script makes in each process."""

    name: str
    is_id: bool = False
    """True if it stands for the object's `id`, another number in each process."""


def items_of(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """What a dict, a list or a tuple holds, by key or number; None of another value."""
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, SEQUENCES) else None


def walk(
    value: Any,
    place: str = "",
    *,
    plain: bool = False,
    depth: int = DEEPEST,
    inside: Callable[[Any], Iterable[tuple[Any, Any]] | None] = items_of,
) -> Iterator[Found]:
    """The value and all values in its dicts, lists and tuples, by place; if asked, plain ones too.

    >>> dict(walk({"a": [(), 1]}))
    {'': {'a': [(), 1]}, 'a': [(), 1], 'a.0': ()}
    """
    yield place, value
    items = inside(value)
    left = [] if items is None else [(place, iter(items))]  # no calls of itself, which would cost
    while left:
        above, items = left[-1]
        for key, item in items:
            if plain or type(item) not in PLAIN:
                try:
                    here = f"{above}.{key}" if above else str(key)
                except ValueError:  # Python does not convert an integer of thousands of digits
                    here = f"{above}.<{type(key).__name__}>"
                yield here, item
                if len(left) < depth and (further := inside(item)) is not None:
                    left.append((here, iter(further)))
                    break
        else:
            left.pop()


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with all that is in its dicts, lists and tuples replaced by `change(item)`.

    The changes are made in the order of `walk`.
    """
    if isinstance(value, dict):
        items = {key: mapped(item, change) for key, item in value.items()}
        return items if type(value) is dict else like(value, items)
    if isinstance(value, SEQUENCES):
        made = [mapped(item, change) for item in value]
        return made if type(value) is list else like(value, made)
    return change(value)


def like(value: Any, items: Any) -> Any:
    """A container of the type of a value, and with its settings, that holds these items."""
    if isinstance(value, defaultdict):
        return defaultdict(value.default_factory, items)
    return deque(items, value.maxlen) if isinstance(value, deque) else type(value)(items)


def same_states(one: Any, other: Any) -> bool:
    """True if two values have the same content in the same places, on whatever devices."""
    if one is other:
        return True
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_states(one[key], other[key]) for key in one)
    if isinstance(one, SEQUENCES) and isinstance(other, SEQUENCES):
        return len(one) == len(other) and all(map(same_states, one, other))
    own: Any = one
    try:
        if is_any_tensor(one) or is_any_tensor(other):
            own, other = own.cpu(), other.cpu()
        if hasattr(own, "shape") and (own.shape, own.dtype) != (other.shape, other.dtype):
            return False
        equal = (own == other) | ((own != own) & (other != other))  # NaN equals NaN
        return bool(equal.all() if hasattr(equal, "all") else equal)
    except Exception:  # of classes whose objects cannot be compared
        return False


def is_any_tensor(value: Any) -> bool:
    """True for a tensor of torch."""
    torch: Any = sys.modules.get("torch")  # not loaded: the value is no tensor
    return torch is not None and isinstance(value, torch.Tensor)


def is_plain_tensor(value: Any) -> bool:
    """True for a tensor of torch itself, and not of another class, such as a shard."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter)


def is_any_array(value: Any) -> bool:
    """True for an array of NumPy."""
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)
