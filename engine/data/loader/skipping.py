"""Items of an iterator that are skipped: at once where they come out of a list or a range."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import count, islice
from types import GeneratorType
from typing import Any

from ..iterators import END

PLACED: Any = (type(iter([])), type(iter(range(0))))
"""The iterators that can be put to any place."""

FEW = 100
"""So many items are skipped one by one."""


def skip(items: Iterator[Any], most: int) -> int:
    """Skip at most `most` items of an iterator; return how many were skipped.

    Torch's samplers draw an order, make a list of it, and give what is in the list. The iterator of
    a list can be put to any place in no time. Whatever the sampler draws, it draws as without that.

    >>> numbers = iter([*range(1000)])
    >>> skip(numbers, 900), next(numbers)
    (900, 900)
    """
    skipped = _jump(items, most)
    while most - skipped > FEW:
        if next(items, END) is END:  # else the sampler has drawn, and stands inside its list
            return skipped
        jumped = _jump(items, most - skipped - 1)
        skipped += 1 + jumped
        if jumped < FEW:
            break
    return skipped + _one_by_one(items, most - skipped)


def _jump(items: Iterator[Any], most: int) -> int:
    """Skip items of the list or range from which they come just now; return how many."""
    inner = _innermost(items)
    jumped: int = min(most, inner.__length_hint__()) if type(inner) in PLACED else 0
    if jumped:
        place = inner.__reduce__()[2] or 0  # Python 3.12 counts in a range from where it stands
        inner.__setstate__(place + jumped)
    return jumped


def _innermost(items: Any) -> Any:
    """The iterator from which a generator takes its items by `yield from`, or the one given."""
    while isinstance(items, GeneratorType) and items.gi_yieldfrom is not None:
        items = items.gi_yieldfrom
    return items


def _one_by_one(items: Iterator[Any], most: int) -> int:
    found = count()
    deque(zip(islice(items, most), found, strict=False), maxlen=0)
    return next(found)
