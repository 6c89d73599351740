"""Where shards lie: the box of a rank, against cuts made one after the other."""

from itertools import product
from math import prod

import pytest
import torch
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from camshaft.engine.modules import box_at


def cut(whole, dim, parts):
    """The parts as `fully_shard` and `distribute_tensor` make them; the last ones may be empty."""
    found = list(whole.chunk(parts, dim)) if whole.shape[dim] else [whole] * parts
    return found + [whole.narrow(dim, 0, 0)] * (parts - len(found))


def place(dim, before):
    """A placement behind so many parts of the same dimension."""
    return Shard(dim) if before == 1 else _StridedShard(dim, split_factor=before)


def layouts():
    """Shape, mesh, placements, and the order in which the dimensions of the mesh cut."""
    rows, few = range(42), range(1, 9)
    for size, data, tensor in product(rows, few, few):
        yield (size,), (data, tensor), (place(0, tensor), Shard(0)), ((1, 0), (0, 0))
    for size, data, tensor in product((0, 1, 5, 7, 9), range(1, 5), range(1, 5)):
        wide, mesh = (size, 5), (data, tensor)
        yield wide, mesh, (Shard(0), Shard(1)), ((0, 0), (1, 1))
        yield wide, mesh, (Shard(0), Shard(0)), ((0, 0), (1, 0))  # two dimensions of one mesh
        yield wide, mesh, (Shard(0), Replicate()), ((0, 0),)
        yield wide, mesh, (place(1, tensor), Shard(1)), ((1, 1), (0, 1))
        hybrid = (Replicate(), place(0, tensor), Shard(0))
        yield wide, (2, *mesh), hybrid, ((2, 0), (1, 0))
        experts = (place(0, 2 * tensor), Shard(0), Shard(0))  # experts, tensor parallelism, FSDP
        yield wide, (data, 2, tensor), experts, ((1, 0), (2, 0), (0, 0))
        both = (place(0, tensor), place(0, tensor), Shard(0))
        yield wide, (data, 2, tensor), both, ((2, 0), (0, 0), (1, 0))


def test_a_shard_is_what_tensor_parallelism_and_then_fully_shard_cut_off():
    count = 0
    for shape, mesh, placements, order in layouts():
        whole = torch.arange(prod(shape)).reshape(shape)
        count += 1
        for at in product(*map(range, mesh)):
            held = whole
            for dim, along in order:
                held = cut(held, along, mesh[dim])[at[dim]]
            box = box_at(shape, mesh, placements, at)
            assert torch.equal(whole[tuple(slice(*each) for each in box)], held), (shape, mesh, at)
    assert count == 42 * 64 + 7 * 80


def test_the_vocabulary_of_a_language_model_on_four_by_two_ranks():
    mesh, placements = (4, 2), (_StridedShard(0, split_factor=2), Shard(0))
    boxes = [box_at((50257, 8), mesh, placements, at)[0] for at in product(range(4), range(2))]
    assert sorted(boxes)[3:5] == [(18849, 25129), (25129, 31411)]
    assert [end for _, end in sorted(boxes)[:-1]] == [begin for begin, _ in sorted(boxes)[1:]]


UNKNOWN = [
    (_StridedShard(0, split_factor=3), Shard(0)),
    (_StridedShard(0, split_factor=2), Replicate()),
]


@pytest.mark.parametrize("placements", UNKNOWN)
def test_what_no_order_of_cuts_gives_is_refused(placements):
    with pytest.raises(ValueError, match=r"split factor .* not the number .*fully_shard after"):
        box_at((8,), (2, 2), placements, (0, 0))
