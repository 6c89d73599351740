"""Which rank writes which piece of a sharded checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from ....engine import ranks
from ..format import Grid, Table
from .regions import is_sharded, replicas

Tensors = Mapping[str, Mapping[str, Tensor]]
"""By file and name."""


class Plan:
    """The table of pieces; each rank computes it, with the same result.

    A piece that several ranks hold is written once, by the rank with the fewest bytes so far.
    """

    def __init__(self, is_the_same: Callable[[str, str], bool]) -> None:
        """Plan nothing yet.

        Args:
            is_the_same: True for the file and the name of a tensor that is the same on all ranks
                although it is not distributed; others are written by rank 0.
        """
        self._is_the_same = is_the_same
        self._known: dict[Any, Sequence[Grid]] = {}
        self._load = [0] * ranks.world_size()

    def table(self, tensors: Tensors) -> Table:
        """The pieces of these tensors."""
        return {
            file: {name: self._grid(file, name, each) for name, each in named.items()}
            for file, named in tensors.items()
        }

    def _grid(self, file: str, name: str, tensor: Any) -> Grid:
        if is_sharded(tensor):
            form = (tensor.dtype, tensor.shape, tensor.device_mesh, tensor.placements)
            if form not in self._known:
                self._known[form] = replicas(tensor)
            copies = self._known[form]
            if len(copies) == 1 or not copies[0].owners:
                return copies[0]
            grid = min(copies, key=lambda each: self._load[each.owners[0]])
            for piece in grid.pieces():
                self._load[piece.rank] += tensor.itemsize * _numbers(piece.shape)
            return grid
        owner = 0
        if self._is_the_same(file, name):
            owner = min(range(len(self._load)), key=self._load.__getitem__)
        self._load[owner] += tensor.nbytes
        return Grid.whole(str(tensor.dtype), tensor.shape, owner)


def _numbers(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
