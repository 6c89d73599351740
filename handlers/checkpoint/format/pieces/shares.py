"""Which pieces each rank's file holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import NamedTuple

from ..tensors import TensorInfo
from .grid import Grid, Piece, bits_of

Owners = tuple[int, ...]


class Held(NamedTuple):
    """A piece in a rank's file, with the tensor that it is a part of."""

    file: str
    name: str
    grid: Grid
    piece: Piece

    @property
    def key(self) -> str:
        """The name of the piece in the rank's file."""
        return self.piece.key(self.file, self.name)

    @property
    def info(self) -> TensorInfo:
        """Type, shape and bytes of the piece."""
        dtype, shape = self.grid.dtype, self.piece.shape
        return TensorInfo(dtype.removeprefix("torch."), shape, prod(shape) * bits_of(dtype) // 8)


class Shares:
    """The pieces of a table by the rank whose file holds them.

    Each list of owners is read once, however many tensors have it. To list the pieces of a rank
    then takes time in proportion to their number.

    >>> grid = Grid("torch.float32", ((0, 2, 4), (0, 3)), (7, 5))
    >>> shares = Shares({"model": {"weight": grid}})
    >>> shares.ranks, [held.key for held in shares.of(5)]
    ([5, 7], ['model/weight[1]'])
    """

    def __init__(self, table: Mapping[str, Mapping[str, Grid]]) -> None:
        self._held: dict[int, list[tuple[list[tuple[str, str, Grid]], list[int]]]] = {}
        for owners, cut in _by_owners(table).items():
            numbers = dict[int, list[int]]()
            for number, rank in enumerate(owners):
                numbers.setdefault(rank, []).append(number)
            for rank, own in numbers.items():
                self._held.setdefault(rank, []).append((cut, own))

    @property
    def ranks(self) -> list[int]:
        """The ranks that hold a piece, in their order."""
        return sorted(self._held)

    def of(self, rank: int) -> Iterator[Held]:
        """The pieces in the file of a rank."""
        for cut, numbers in self._held.get(rank, ()):
            for file, name, grid in cut:
                for number in numbers:
                    yield Held(file, name, grid, grid.piece(number))

    def infos(self, rank: int) -> dict[str, TensorInfo]:
        """What the file of a rank has to hold of the tensors, by name."""
        return {held.key: held.info for held in self.of(rank)}


def _by_owners(
    table: Mapping[str, Mapping[str, Grid]],
) -> dict[Owners, list[tuple[str, str, Grid]]]:
    """The tensors of each list of owners; most tensors share a few lists of many ranks."""
    found = dict[Owners, list[tuple[str, str, Grid]]]()
    known = dict[int, list[tuple[str, str, Grid]]]()  # by identity: comparing lists takes long
    for file, grids in table.items():
        for name, grid in grids.items():
            own = known.get(id(grid.owners))
            if own is None:
                own = known[id(grid.owners)] = found.setdefault(grid.owners, [])
            own.append((file, name, grid))
    return found
