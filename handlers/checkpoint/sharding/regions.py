"""The places of the shards of a distributed tensor."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

from ....engine.modules import box_at
from ..format import Grid


def is_sharded(value: object) -> bool:
    """True for a distributed tensor of several ranks."""
    return is_distributed(value) and value.device_mesh.size() > 1  # type: ignore[attr-defined]


def is_distributed(value: object) -> bool:
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


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor of this shape."""
    return torch.empty(shape, device="meta").stride()
