"""Sums over ranks of numbers that have names."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, TypeVar
from zlib import crc32

from .communication import gathered, largest, total
from .groups import is_distributed

Name = TypeVar("Name", bound=Hashable)


def summed(numbers: Mapping[Name, float], *, group: Any = None) -> dict[Name, float]:
    """The sum over ranks of each number; a rank may lack some of them.

    Two messages of some bytes, whose size does not depend on the number of ranks, where all ranks
    have the same names in the same order. Where they have not, each rank hears of all numbers.
    """
    if not is_distributed():
        return dict(numbers)
    import torch

    are_whole = all(type(number) is int for number in numbers.values())
    layout = crc32(repr([are_whole, *numbers]).encode())
    most, least = largest(torch.tensor([layout, -layout]), group=group).tolist()
    if most == -least:
        kind = torch.int64 if are_whole else torch.float64
        sums = torch.as_tensor(total(torch.tensor([*numbers.values()], dtype=kind), group=group))
        return dict(zip(numbers, sums.tolist(), strict=True))
    found: dict[Name, float] = {}
    for each in gathered(dict(numbers), group=group):
        for name, number in each.items():
            found[name] = found.get(name, 0) + number
    return found
