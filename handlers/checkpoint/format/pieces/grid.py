"""One tensor cut into pieces."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod

from ..tensors import DTYPES, TensorInfo

Cuts = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Grid:
    """A tensor cut into pieces along its dimensions, as a sheet of paper into labels.

    So the pieces cover the tensor exactly: a grid can have neither gaps nor overlaps.

    >>> grid = Grid("torch.float32", ((0, 2, 4), (0, 3)), (7, 5))
    >>> grid.shape, [(piece.rank, piece.begin, piece.end) for piece in grid.pieces()]
    ((4, 3), [(7, (0, 0), (2, 3)), (5, (2, 0), (4, 3))])
    """

    dtype: str
    """As torch prints it."""
    cuts: Cuts
    """For each dimension the places of the cuts, from 0 to its size."""
    owners: tuple[int, ...]
    """The rank whose file holds each piece; the last dimension changes fastest."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole tensor."""
        return tuple(each[-1] for each in self.cuts)

    @property
    def info(self) -> TensorInfo:
        """Type, shape and bytes of the whole tensor."""
        name = self.dtype.removeprefix("torch.")
        return TensorInfo(name, self.shape, prod(self.shape) * bits_of(self.dtype) // 8)

    def pieces(self, overlapping: Iterable[tuple[int, int]] | None = None) -> Iterator[Piece]:
        """All pieces, or those that overlap a range of each dimension."""
        ranges = list(overlapping or ((0, size) for size in self.shape))
        near = [
            range(bisect_right(cuts, first) - 1, min(bisect_left(cuts, last), len(cuts) - 1))
            for cuts, (first, last) in zip(self.cuts, ranges, strict=True)
        ]
        for place in product(*near):
            number = 0
            for at, cuts in zip(place, self.cuts, strict=True):
                number = number * (len(cuts) - 1) + at
            yield self._piece(number, place)

    def piece(self, number: int) -> Piece:
        """The piece of a number: its place in `owners`."""
        left, place = number, list[int]()
        for cuts in reversed(self.cuts):
            left, at = divmod(left, len(cuts) - 1)
            place.append(at)
        return self._piece(number, place[::-1])

    def _piece(self, number: int, place: Sequence[int]) -> Piece:
        begin = tuple(cuts[at] for at, cuts in zip(place, self.cuts, strict=True))
        end = tuple(cuts[at + 1] for at, cuts in zip(place, self.cuts, strict=True))
        return Piece(number, self.owners[number], begin, end)


@dataclass(frozen=True)
class Piece:
    """One piece of a tensor: where it lies in the tensor, and which rank's file holds it."""

    number: int
    rank: int
    begin: tuple[int, ...]
    end: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the piece."""
        return tuple(b - a for a, b in zip(self.begin, self.end, strict=True))

    def key(self, file: str, name: str) -> str:
        """Its name in the rank's file.

        >>> Piece(3, 1, (0,), (2,)).key("model", "layers.0.weight")
        'model/layers.0.weight[3]'
        """
        return f"{file}/{name}[{self.number}]"


@cache
def bits_of(dtype: str) -> int:
    """The bits of one number: the digits in the type's code in a file."""
    if dtype == "torch.bool":
        return 8
    return 8 if "F8" in DTYPES[dtype] else int("".join(filter(str.isdigit, DTYPES[dtype])))
