"""Distributed tensors: where their shards lie, which rank writes what, and the layout of a save."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import product
from json import dumps
from typing import Any

from torch import Tensor

from ...engine import ranks
from ...engine.modules import box_at, box_of, local
from .format import Grid, Shares, Table, TensorInfo, table_as_tree

Tensors = Mapping[str, Mapping[str, Tensor]]
"""By file and name."""
Forms = dict[str, dict[str, tuple[Any, ...]]]
"""By file and name, what decides how a tensor is cut and who writes its pieces."""


def is_sharded(value: object) -> bool:
    """True for a distributed tensor of several ranks."""
    return is_dtensor(value) and value.device_mesh.size() > 1  # type: ignore[attr-defined]


def is_dtensor(value: object) -> bool:
    """True for a distributed tensor; torch's module of them is not imported for that."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


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
    free = [dim for dim, each in enumerate(placements) if each.is_replicate()]
    cuts, places = [], []
    for dim in range(len(shape)):
        sharding = [m for m, each in enumerate(placements) if m not in free and each.dim == dim]
        spans = sorted(_spans(shape, dim, mesh.shape, placements, sharding))
        cuts.append((0, *(end for _, end, _ in spans)))
        places.append([at for _, _, at in spans])
    held = mesh.mesh
    return tuple(
        Grid(dtype, tuple(cuts), tuple(_rank(held, free, copy, at) for at in product(*places)))
        for copy in product(*(range(mesh.shape[dim]) for dim in free))
    )


def _on_all(mesh: Any, placements: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The mesh of which a mesh is a part, and the placements in it.

    A layer that is sharded along one dimension of the whole mesh has one sub-mesh for each place in
    the other dimensions. A rank's tensor knows only the sub-mesh of this rank.
    """
    from torch.distributed.tensor.placement_types import Replicate

    root = mesh._get_root_mesh()
    own, names = mesh.mesh_dim_names or (), root.mesh_dim_names or ()
    if root is mesh or not own or [name for name in names if name in own] != [*own]:
        return mesh, list(placements)
    by_name = dict(zip(own, placements, strict=True))
    return root, [by_name.get(name, Replicate()) for name in names]


def _rank(ranks: Tensor, free: Sequence[int], copy: Sequence[int], at: Sequence[Any]) -> int:
    coordinate = dict(zip(free, copy, strict=True))
    for each in at:
        coordinate |= each
    return int(ranks[tuple(coordinate[dim] for dim in range(ranks.ndim))])


def _spans(
    shape: tuple[int, ...],
    dim: int,
    mesh: tuple[int, ...],
    placements: Any,
    sharding: Sequence[int],
) -> Iterator[tuple[int, int, dict[int, int]]]:
    """The ranges of a dimension, with the coordinates in the mesh of the ranks that hold them."""
    for at in product(*(range(mesh[each]) for each in sharding)):
        known = dict(zip(sharding, at, strict=True))
        coordinate = [known.get(each, 0) for each in range(len(mesh))]
        begin, end = box_at(shape, mesh, placements, coordinate)[dim]
        if begin < end:
            yield begin, end, known


class ShardPlan:
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


class Layouts:
    """The layout of a run's saves, kept until a tensor comes, goes, or has another form."""

    def __init__(self) -> None:
        self._forms: Forms | None = None
        self._layout = Layout({}, {})

    def of(self, tensors: Tensors, is_the_same: Callable[[str, str], bool]) -> Layout:
        """How these tensors lie on the ranks; see `Plan` for what is the same on all of them."""
        forms: Forms = {}
        for file, named in tensors.items():
            forms[file] = {
                name: _sharded(each) or (is_the_same(file, name), *_plain(each))
                for name, each in named.items()
            }
        if forms != self._forms:
            _check_shards(tensors)
            self._layout, self._forms = (
                Layout(ShardPlan(is_the_same).table(tensors), tensors),
                forms,
            )
        return self._layout


class Layout:
    """The table of all pieces, the same on all ranks, and which of them are this rank's own."""

    def __init__(self, table: Table, tensors: Tensors) -> None:
        self.table = table
        held = [*Shares(table).of(ranks.rank())]
        self.infos: dict[str, TensorInfo] = {each.key: each.info for each in held}
        """What this rank's file has to hold, by the names of the pieces."""
        self._places = [(each.key, each.file, each.name) for each in held]

    @cached_property
    def tree(self) -> dict[str, Any]:
        """The table as JSON."""
        return table_as_tree(self.table)

    @cached_property
    def digest(self) -> str:
        """The same text on all ranks if their tables are the same."""
        return sha256(dumps(self.tree, sort_keys=True).encode()).hexdigest()

    def own(self, tensors: Tensors) -> dict[str, Tensor]:
        """This rank's pieces by their names in its file; they share the memory of its shards."""
        return {key: local(tensors[file][name]).detach() for key, file, name in self._places}


def _sharded(tensor: Any) -> tuple[Any, ...]:
    """The properties that decide how a distributed tensor is cut; empty for a plain tensor."""
    if not is_sharded(tensor):
        return ()
    return tensor.device_mesh, tensor.placements, *_plain(tensor)


def _plain(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape


def _check_shards(tensors: Tensors) -> None:
    """Check that each shard of this rank has the shape that its place in the mesh gives it.

    Raises:
        ValueError: The shard has another shape.
    """
    for file, named in tensors.items():
        for name, each in named.items():
            try:
                if is_sharded(each):
                    box_of(each)
            except ValueError as error:
                raise ValueError(f"cannot save {name!r} of {file!r}: {error}") from None
