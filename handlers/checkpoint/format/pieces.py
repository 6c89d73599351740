"""Sharded tensors: how each is cut, which rank's file holds which piece, and the table as JSON.

Nothing here needs torch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from operator import itemgetter
from typing import Any

from ...files import budget
from .tensors import DTYPES, TensorInfo

PIECES = "pieces.json"
"""The file of the table; a checkpoint without sharded tensors has none."""
MEMORY = "/memory"
"""The table's name for the sharded tensors that handlers remember: no file has such a name."""


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
    cuts: tuple[tuple[int, ...], ...]
    """For each dimension the places of the cuts, from 0 to its size."""
    owners: tuple[int, ...]
    """The rank whose file holds each piece; the last dimension changes fastest."""

    @classmethod
    def whole(cls, dtype: str, shape: Iterable[int], owner: int = 0) -> Grid:
        """The grid of a tensor that is not cut: one piece, or none if the tensor is empty."""
        cuts = tuple((0, size) if size else (0,) for size in shape)
        return cls(dtype, cuts, () if (0,) in cuts else (owner,))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole tensor."""
        return tuple(each[-1] for each in self.cuts)

    @property
    def info(self) -> TensorInfo:
        """Type and shape of the whole tensor."""
        return TensorInfo(self.dtype.removeprefix("torch."), self.shape)

    def pieces(self, overlapping: Iterable[tuple[int, int]] | None = None) -> Iterator[StoredPiece]:
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
            yield self.piece(number)

    def piece(self, number: int) -> StoredPiece:
        """The piece of a number: its place in `owners`."""
        rest, spans = number, list[tuple[int, int]]()
        for cuts in reversed(self.cuts):
            rest, at = divmod(rest, len(cuts) - 1)
            spans.insert(0, (cuts[at], cuts[at + 1]))
        begin, end = (tuple(span[side] for span in spans) for side in (0, 1))
        return StoredPiece(number, self.owners[number], begin, end)


@dataclass(frozen=True)
class StoredPiece:
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

        >>> StoredPiece(3, 1, (0,), (2,)).key("model", "layers.0.weight")
        'model/layers.0.weight[3]'
        """
        return f"{file}/{name}[{self.number}]"


Table = dict[str, dict[str, Grid]]
"""By file and name, as in `state.json`: how a tensor is cut into pieces."""
Place = tuple[str, str, Grid]
"""The file and the name of a tensor, and how it is cut."""


class Pieces:
    """The pieces of a table by the rank whose file holds them.

    Each list of owners is read once, however many tensors have it. To list the pieces of a rank
    then takes time in proportion to their number.

    >>> grid = Grid("torch.float32", ((0, 2, 4), (0, 3)), (7, 5))
    >>> pieces = Pieces({"model": {"weight": grid}})
    >>> pieces.ranks, pieces.infos(5)
    ([5, 7], {'model/weight[1]': TensorInfo(dtype='float32', shape=(2, 3))})
    """

    def __init__(self, table: Table) -> None:
        self._of_ranks: dict[int, list[tuple[list[Place], list[int]]]] = {}
        known = dict[int, list[Place]]()  # by identity: comparing lists of owners takes long
        for file, grids in table.items():
            for name, grid in grids.items():
                if (cut := known.get(id(grid.owners))) is None:
                    cut = known[id(grid.owners)] = []
                    self._add(grid.owners, cut)
                cut.append((file, name, grid))

    def _add(self, owners: tuple[int, ...], cut: list[Place]) -> None:
        numbers = dict[int, list[int]]()
        for number, rank in enumerate(owners):
            numbers.setdefault(rank, []).append(number)
        for rank, own in numbers.items():
            self._of_ranks.setdefault(rank, []).append((cut, own))

    @property
    def ranks(self) -> list[int]:
        """The ranks that hold a piece, in their order."""
        return sorted(self._of_ranks)

    def of(self, rank: int) -> Iterator[tuple[str, str, StoredPiece, TensorInfo]]:
        """The pieces in the file of a rank: the file and name of the tensor, piece, and its type.

        The file is the one that would hold the tensor if it were not cut.
        """
        for cut, numbers in self._of_ranks.get(rank, ()):
            for file, name, grid in cut:
                for number in numbers:
                    piece = grid.piece(number)
                    yield file, name, piece, TensorInfo(grid.info.dtype, piece.shape)

    def infos(self, rank: int) -> dict[str, TensorInfo]:
        """The pieces of tensors that a rank's file must hold, by name."""
        return {piece.key(file, name): info for file, name, piece, info in self.of(rank)}


def table_as_tree(table: Table) -> dict[str, Any]:
    """The table as JSON; lists of cuts and of ranks that many tensors share are there once."""
    cuts, owners = dict[tuple[int, ...], int](), dict[tuple[int, ...], int]()
    tensors = {
        file: {
            name: [
                grid.dtype,
                [cuts.setdefault(each, len(cuts)) for each in grid.cuts],
                owners.setdefault(grid.owners, len(owners)),
            ]
            for name, grid in grids.items()
        }
        for file, grids in table.items()
    }
    return {"cuts": [*map(list, cuts)], "ranks": [*map(list, owners)], "tensors": tensors}


def table_of_tree(tree: Any, world_size: int) -> Table:
    """The table that `table_as_tree` gave.

    Raises:
        ValueError: No run writes such a table: a piece lies outside of its tensor or belongs to no
            rank, pieces have a gap or an overlap, a type is unknown, or there are too many.
    """
    cuts = [_cuts(each) for each in _list(tree["cuts"])]
    owners = [_owners(each, world_size) for each in _list(tree["ranks"])]
    table: Table = {}
    room, uses = budget.MOST_PIECES, Counter[int]()
    for file, named in _dict(tree["tensors"]).items():
        table[file] = {}
        for name, entry in _dict(named).items():
            dtype, places, place = _list(entry)
            grid = Grid(dtype, tuple(_at(cuts, each) for each in _list(places)), _at(owners, place))
            if dtype not in DTYPES:
                raise ValueError(f"has a tensor of {str(dtype)[:50]}: {name!r}")
            if TensorInfo(dtype, tuple(max(1, each) for each in grid.shape)).size >= 2**60:
                raise ValueError(f"has a tensor that no memory holds: {name!r}")
            if prod(len(each) - 1 for each in grid.cuts) != len(grid.owners):
                raise ValueError(f"has pieces with a gap or an overlap: {name!r}")
            room -= len(grid.owners)
            if room < 0:
                raise ValueError(f"has more than {budget.MOST_PIECES} pieces of tensors")
            uses[place] += 1
            table[file][name] = grid
    _refuse_many(owners, uses)
    return table


def _refuse_many(owners: list[tuple[int, ...]], uses: Mapping[int, int]) -> None:
    """Refuse a rank with too many pieces: a small text can name a list of owners very often."""
    counts = Counter[int]()
    for place, times in uses.items():
        for rank, count in Counter(owners[place]).items():
            counts[rank] += times * count
    rank, most = max(counts.items(), key=itemgetter(1), default=(0, 0))
    if most > budget.MOST_PIECES_OF_RANK:
        raise ValueError(
            f"gives rank {rank} {most} pieces of tensors, more than {budget.MOST_PIECES_OF_RANK}"
        )


def _cuts(given: Any) -> tuple[int, ...]:
    cuts = tuple(_list(given))
    if any(type(each) is not int for each in cuts) or cuts[:1] != (0,):
        raise ValueError("has cuts that are no places from 0 on")
    if any(a >= b for a, b in pairwise(cuts)) or cuts[-1] >= 2**63:
        raise ValueError("has pieces with a gap or an overlap: their places do not rise")
    return cuts


def _owners(given: Any, world_size: int) -> tuple[int, ...]:
    owners = tuple(_list(given))
    if any(type(each) is not int or not 0 <= each < world_size for each in owners):
        raise ValueError(f"names ranks that are not among the {world_size} of the run")
    return owners


def _at(known: list[tuple[int, ...]], place: Any) -> tuple[int, ...]:
    if type(place) is not int or not 0 <= place < len(known):
        raise ValueError(f"refers to a list that it does not have: {str(place)[:50]}")
    return known[place]


def _list(given: Any) -> list[Any]:
    if not isinstance(given, list):
        raise ValueError(f"has a {type(given).__name__} where a list should be")
    return given


def _dict(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ValueError(f"has a {type(given).__name__} where names should be")
    return given
