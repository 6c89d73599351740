"""The table of pieces: how each tensor of a sharded checkpoint is cut, as JSON. Without torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from math import prod
from operator import itemgetter
from typing import Any

from ....files import budget
from ..tensors import DTYPES
from .grid import Grid, bits_of

PIECES = "pieces.json"
"""The file of the table; a checkpoint without sharded tensors has none."""
MEMORY = "/memory"
"""The table's name for the sharded tensors that handlers remember: no file has such a name."""

Table = dict[str, dict[str, Grid]]
"""By file and name, as in `state.json`: how a tensor is cut into pieces."""


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
    left, uses = budget.MOST_PIECES, Counter[int]()
    for file, named in _dict(tree["tensors"]).items():
        table[file] = {}
        for name, entry in _dict(named).items():
            dtype, places, place = _list(entry)
            grid = Grid(dtype, tuple(_at(cuts, each) for each in _list(places)), _at(owners, place))
            if dtype not in DTYPES:
                raise ValueError(f"has a tensor of {str(dtype)[:50]}: {name!r}")
            if prod(max(1, each) for each in grid.shape) * bits_of(dtype) >= 2**63:
                raise ValueError(f"has a tensor that no memory holds: {name!r}")
            if prod(len(each) - 1 for each in grid.cuts) != len(grid.owners):
                raise ValueError(f"has pieces with a gap or an overlap: {name!r}")
            left -= len(grid.owners)
            if left < 0:
                raise ValueError(f"has more than {budget.MOST_PIECES} pieces of tensors")
            uses[place] += 1
            table[file][name] = grid
    _check_shares(owners, uses)
    return table


def _check_shares(owners: list[tuple[int, ...]], uses: Mapping[int, int]) -> None:
    """Refuse a rank with too many pieces: a small text can name a list of owners very often."""
    shares = Counter[int]()
    for place, times in uses.items():
        for rank, pieces in Counter(owners[place]).items():
            shares[rank] += times * pieces
    rank, most = max(shares.items(), key=itemgetter(1), default=(0, 0))
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
