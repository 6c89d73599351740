"""Iterators as data: they cannot begin again, and each pass reads on where the last one ended."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

from ..state import Batch, Position

END: Any = object()


def rest_of(batches: Iterator[Batch]) -> Iterator[Batch]:
    """What an iterator has left; one that `iter` may rewind is kept from being rewound."""
    return _left(batches) if may_begin_again(batches) else batches


def _left(batches: Iterator[Batch]) -> Iterator[Batch]:
    while (batch := next(batches, END)) is not END:
        yield batch


def may_begin_again(batches: object) -> bool:
    """True for an iterator of a class with an `__iter__` in Python, which may rewind it."""
    is_own = isinstance(getattr(type(batches), "__iter__", None), FunctionType)
    return is_own and isinstance(batches, Iterator)


def read_again(data: object, position: Position, earlier: Position | None) -> int:
    """Note where an iterator was begun; return how many of its batches this pass reads again.

    An iterator of a resumed script stands at its beginning, before the batches of all earlier
    passes. In the process that has read from it, it stands where the next pass begins.
    """
    if not isinstance(data, Iterator):
        return 0
    position.source = data
    if may_begin_again(data):
        return 0
    position.read_from = position.began
    if earlier is None or earlier.read_from is None:
        return 0
    if earlier.source is None:  # read by another process: the script has made it anew
        position.read_from = earlier.read_from
        return position.began - earlier.read_from
    if earlier.source is data:
        position.read_from = earlier.read_from
    return 0
