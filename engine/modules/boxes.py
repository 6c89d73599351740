"""The place of a rank's shard in the whole tensor: a box, which is one range per dimension."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

Box = tuple[tuple[int, int], ...]
"""For each dimension, the begin and the end of a part of a tensor."""


def box_of(tensor: Any) -> Box:
    """The box of this rank's shard in a distributed tensor.

    Raises:
        ValueError: The shard's shape is not the one that the rank's place in the mesh gives.
    """
    mesh, own = tensor.device_mesh, tuple(tensor._local_tensor.shape)
    coordinate = mesh.get_coordinate()
    if coordinate is None:  # this rank is not in the mesh, and holds nothing
        return ((0, 0),) * len(tensor.shape)
    box = box_at(tuple(tensor.shape), tuple(mesh.shape), tuple(tensor.placements), coordinate)
    if own != shape_of(box) and prod(own) + prod(shape_of(box)):
        raise ValueError(
            f"this rank holds {own} of a tensor of {tuple(tensor.shape)}, and its place in the "
            f"mesh {tuple(mesh.shape)} gives it {shape_of(box)} by {tensor.placements}: shard it "
            "by fully_shard, parallelize_module or distribute_tensor, which cut as torch.chunk does"
        )
    return box


def box_at(
    shape: tuple[int, ...], mesh: tuple[int, ...], placements: Sequence[Any], at: Sequence[int]
) -> Box:
    """The box of the shard at a place of a mesh, if each cut is made as by `torch.chunk`.

    Args:
        shape: The shape of the whole tensor.
        mesh: The sizes of the mesh.
        placements: One for each dimension of the mesh.
        at: The place in the mesh.

    Raises:
        ValueError: No order of cuts gives these placements.
    """
    found = [(0, size) for size in shape]
    for dim, cutting in _orders(mesh, tuple(placements)).items():
        for each in cutting:
            found[dim] = _chunk(*found[dim], mesh[each], at[each])
    return tuple(found)


def shape_of(box: Box) -> tuple[int, ...]:
    """The shape of a box."""
    return tuple(end - begin for begin, end in box)


def slices(box: Box) -> tuple[slice, ...]:
    """The index that selects a box from a tensor."""
    return tuple(slice(*each) for each in box)


def _chunk(begin: int, end: int, parts: int, number: int) -> tuple[int, int]:
    size = -(-(end - begin) // parts)
    return min(end, begin + number * size), min(end, begin + (number + 1) * size)


@lru_cache(maxsize=512)
def _orders(mesh: tuple[int, ...], placements: tuple[Any, ...]) -> dict[int, list[int]]:
    """By dimension of a tensor: the dimensions of the mesh that cut it, in their order.

    Plain shards are cut from left to right. `fully_shard` cuts after tensor parallelism, and writes
    a strided shard, whose split factor is the number of parts cut before it.
    """
    found: dict[int, list[int]] = {}
    for number in reversed(range(len(placements))):
        place = placements[number]
        if not hasattr(place, "dim"):
            continue
        cutting, before = found.setdefault(place.dim, []), getattr(place, "split_factor", 1)
        after = (
            at for at in range(len(cutting) + 1) if prod(mesh[m] for m in cutting[:at]) == before
        )
        if (at := next(after, None)) is None:
            raise ValueError(
                f"{placements} on a mesh of {mesh} is no sharding that Camshaft knows: the split "
                f"factor of {place} is not the number of parts of the dimensions on its right. "
                "Shard by fully_shard after parallelize_module"
            )
        cutting.insert(at, number)
    return found
