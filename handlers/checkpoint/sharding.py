"""Distributed tensors: where their shards lie, which rank writes what, and the layout of a save."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import product
from json import dumps
from math import prod
from typing import Any

from torch import Tensor

from ...engine import ranks
from ...engine.modules import box_at, box_of, is_spread, local
from .format import PIECES, Grid, Pieces, Table, TensorInfo, table_as_tree, table_of_tree

Tensors = Mapping[str, Mapping[str, Tensor]]
"""By file and name."""
Box = tuple[tuple[int, int], ...]
"""For each dimension where a part of a tensor begins and ends."""


def is_sharded(value: object) -> bool:
    """True for a distributed tensor of several ranks."""
    return is_spread(value) and value.device_mesh.size() > 1


def holds_first_copy(tensor: Any) -> bool:
    """True on one of the ranks that hold the same shard of a tensor."""
    mesh, placements = _on_all(tensor.device_mesh, tensor.placements)
    coordinate = mesh.get_coordinate()
    return coordinate is not None and not any(
        at for at, place in zip(coordinate, placements, strict=True) if place.is_replicate()
    )


def replicas(tensor: Any) -> tuple[Grid, ...]:
    """How the whole tensor is cut into shards, once for each replica."""
    mesh, placements = _on_all(tensor.device_mesh, tensor.placements)
    if any(each.is_partial() for each in placements):
        raise TypeError(f"a distributed tensor with partial sums: {placements}")
    return _grids(str(tensor.dtype), tuple(tensor.shape), mesh, tuple(placements))


@lru_cache(maxsize=512)  # a save every few minutes cuts the same shapes over thousands of ranks
def _grids(
    dtype: str, shape: tuple[int, ...], mesh: Any, placements: tuple[Any, ...]
) -> tuple[Grid, ...]:
    sharding = [dim for dim, each in enumerate(placements) if not each.is_replicate()]
    owners = dict[tuple[int, ...], dict[Box, int]]()
    """By replica and by the box of the tensor: the rank that holds it."""
    for at, rank in zip(
        product(*map(range, mesh.shape)), mesh.mesh.flatten().tolist(), strict=True
    ):
        copy = tuple(place for dim, place in enumerate(at) if dim not in sharding)
        owners.setdefault(copy, {})[box_at(shape, mesh.shape, placements, at)] = rank
    boxes = sorted(owners[min(owners)])  # the same in all replicas, in the order of a grid
    sides = zip(*boxes, strict=True)
    cuts = tuple((0, *sorted({end for begin, end in side if begin < end})) for side in sides)
    full = [box for box in boxes if all(begin < end for begin, end in box)]
    return tuple(Grid(dtype, cuts, tuple(own[box] for box in full)) for own in owners.values())


def _on_all(mesh: Any, placements: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The mesh of which a mesh is a part, and the placements in it.

    A layer that is sharded along one dimension of the whole mesh has one sub-mesh for each place in
    the other dimensions. A rank's tensor knows only the sub-mesh of this rank.
    """
    from torch.distributed.tensor.placement_types import Replicate

    if hasattr(mesh, "_get_root_mesh"):
        root = mesh._get_root_mesh()
    else:  # torch 2.9
        from torch.distributed import device_mesh

        root = device_mesh._mesh_resources.get_root_mesh(mesh)  # pyright: ignore
    own, names = mesh.mesh_dim_names or (), root.mesh_dim_names or ()
    if root is mesh or not own or [name for name in names if name in own] != [*own]:
        return mesh, list(placements)
    by_name = dict(zip(own, placements, strict=True))
    return root, [by_name.get(name, Replicate()) for name in names]


class Layout:
    """How the tensors of a run's saves lie on the ranks; all ranks compute the same.

    It is made anew when a tensor comes, goes, or has another form.
    """

    def __init__(self) -> None:
        self._forms: dict[str, dict[str, tuple[Any, ...]]] = {}
        """By file and name: what decides how a tensor is cut, and who writes its pieces."""
        self.table: Table = {}
        self.tree: dict[str, Any] = table_as_tree({})
        """The table as JSON."""
        self.digest: str = ""
        """The same text on all ranks if their tables are the same."""
        self.infos: dict[str, TensorInfo] = {}
        """What this rank's file has to hold, by the names of the pieces."""
        self._places: list[tuple[str, str, str]] = []

    def update(self, tensors: Tensors, is_the_same: Callable[[str, str], bool]) -> None:
        """Learn how these tensors lie on the ranks; see `table_of` for `is_the_same`.

        Raises:
            ValueError: A shard of this rank has another shape than its place in the mesh gives it,
                or nobody would read the table.
        """
        forms = {
            file: {name: _form(each, is_the_same(file, name)) for name, each in named.items()}
            for file, named in tensors.items()
        }
        if forms == self._forms:
            return
        _check_shards(tensors)
        self.table = table_of(tensors, is_the_same)
        self.tree = table_as_tree(self.table)
        try:
            table_of_tree(self.tree, ranks.world_size())
        except ValueError as error:
            advice = "shard within hosts and replicate between them (HSDP)"
            raise ValueError(f"cannot save: {PIECES} {error}; {advice}") from error
        self._forms = forms
        self.digest = sha256(dumps(self.tree, sort_keys=True).encode()).hexdigest()
        own = [*Pieces(self.table).of(ranks.rank())]
        self.infos = {piece.key(file, name): info for file, name, piece, info in own}
        self._places = [(piece.key(file, name), file, name) for file, name, piece, _ in own]

    def own(self, tensors: Tensors) -> dict[str, Tensor]:
        """This rank's pieces by their names in its file; they share the memory of its shards."""
        return {key: local(tensors[file][name]).detach() for key, file, name in self._places}


def table_of(tensors: Tensors, is_the_same: Callable[[str, str], bool]) -> Table:
    """How these tensors are cut into pieces, and which rank writes which piece.

    A piece that several ranks hold is written once, by the rank with the fewest bytes so far.

    Args:
        tensors: By file and name.
        is_the_same: True for the file and the name of a tensor that is the same on all ranks
            although it is not distributed; others are written by rank 0.
    """
    load = [0] * ranks.world_size()

    def grid_of(tensor: Any, is_the_same: bool) -> Grid:
        if not is_sharded(tensor):
            owner = min(range(len(load)), key=load.__getitem__) if is_the_same else 0
            load[owner] += tensor.nbytes
            return Grid.whole(str(tensor.dtype), tensor.shape, owner)
        copies = replicas(tensor)
        if len(copies) == 1 or not copies[0].owners:
            return copies[0]
        grid = min(copies, key=lambda each: load[each.owners[0]])
        for piece in grid.pieces():
            load[piece.rank] += tensor.itemsize * prod(piece.shape)
        return grid

    return {
        file: {name: grid_of(each, is_the_same(file, name)) for name, each in named.items()}
        for file, named in tensors.items()
    }


def _form(tensor: Any, is_the_same: bool) -> tuple[Any, ...]:
    lies = (tensor.device_mesh, tensor.placements) if is_sharded(tensor) else (is_the_same,)
    return *lies, tensor.dtype, tensor.shape


def _check_shards(tensors: Tensors) -> None:
    """Check that each shard of this rank has the shape that its place in the mesh gives it."""
    for file, named in tensors.items():
        for name, each in named.items():
            try:
                if is_sharded(each):
                    box_of(each)
            except ValueError as error:
                raise ValueError(f"cannot save {name!r} of {file!r}: {error}") from None
