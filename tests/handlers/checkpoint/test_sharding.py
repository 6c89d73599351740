"""Grids of pieces, and the tables of them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from camshaft.engine.modules import box_at
from camshaft.handlers.checkpoint.format import Grid, Pieces, table_as_tree, table_of_tree
from camshaft.handlers.checkpoint.sharding import replicas


class Mesh:
    """What of a mesh tells where shards lie; a mesh itself needs a process group."""

    def __init__(self, *shape):
        self.shape = shape
        self.mesh = torch.arange(torch.Size(shape).numel()).reshape(shape)
        self.mesh_dim_names = None

    def _get_root_mesh(self):
        return self


class Distributed:
    def __init__(self, shape, mesh, placements):
        self.shape, self.ndim, self.dtype = torch.Size(shape), len(shape), torch.float32
        self.device_mesh, self.placements = mesh, placements


def placement(dim, before):
    return Shard(dim) if before == 1 else _StridedShard(dim, split_factor=before)


@st.composite
def layouts(draw):
    """A mesh, and placements that cutting in some order gives."""
    mesh = Mesh(*draw(st.tuples(st.integers(1, 4), st.integers(1, 3))))
    dims = draw(st.tuples(*[st.sampled_from([None, 0, 1])] * 2))
    is_later = dims[0] == dims[1] and draw(st.booleans())  # the first dimension cuts last
    before = (mesh.shape[1] if is_later else 1, 1)
    places = (
        Replicate() if d is None else placement(d, n) for d, n in zip(dims, before, strict=True)
    )
    return mesh, tuple(places)


SHAPES = st.tuples(st.integers(0, 9), st.integers(0, 9))


@given(SHAPES, layouts())
def test_the_pieces_of_a_grid_cover_a_tensor_once_and_are_their_owners_shards(shape, layout):
    mesh, placements = layout
    copies = replicas(Distributed(shape, mesh, placements))
    free = [n for each, n in zip(placements, mesh.shape, strict=True) if each == Replicate()]
    assert len(copies) == torch.Size(free).numel()
    for grid in copies:
        seen = torch.zeros(shape, dtype=torch.int64)
        for piece in grid.pieces():
            (a, b), (c, d) = zip(piece.begin, piece.end, strict=True)
            seen[a:b, c:d] += 1
            coordinate = tuple(int(each) for each in (mesh.mesh == piece.rank).nonzero()[0])
            assert box_at(shape, mesh.shape, placements, coordinate) == ((a, b), (c, d))
        assert (seen == 1).all()
        table = {"model": {"w": grid, "again": grid}}
        held = [each for rank in range(12) for each in Pieces(table).of(rank)]
        assert len({*held}) == len(held) == 2 * len(grid.owners)
        assert {piece for _, _, piece, _ in held} == {*grid.pieces()}
        assert Pieces(table).ranks == sorted({*grid.owners})
        assert table_of_tree(table_as_tree(table), mesh.mesh.numel()) == table


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cuts": [[0, 2, 5]]}, "gap or an overlap"),  # another count of pieces than of ranks
        ({"cuts": [[0, 3, 2, 5]]}, "gap or an overlap"),
        ({"cuts": [[1, 2, 4, 5]]}, "no places from 0 on"),
        ({"cuts": [[0, -2, 4, 5]]}, "gap or an overlap"),
        ({"cuts": [[0, 2, 4, 2**63]]}, "gap or an overlap"),
        ({"cuts": [[0, 2, 4, 2**62]]}, "no memory holds"),
        ({"cuts": [[0, 2.0, 4, 5]]}, "no places from 0 on"),
        ({"cuts": [[]]}, "no places from 0 on"),
        ({"cuts": "all"}, "a str where a list should be"),
        ({"ranks": [[0, 1, 9]]}, "names ranks that are not among"),
        ({"ranks": [[0, 1, -1]]}, "names ranks that are not among"),
        ({"tensors": {"model": {"w": ["torch.object", [0], 0]}}}, "a tensor of torch.object"),
        ({"tensors": {"model": {"w": ["torch.float32", [7], 0]}}}, "a list that it does not have"),
        ({"tensors": {"model": {"w": ["torch.float32", [0], -1]}}}, "that it does not have"),
        ({"tensors": {"model": 3}}, "a int where names should be"),
    ],
)
def test_a_table_that_no_run_writes_is_refused(change, reason):
    good = {"cuts": [[0, 2, 4, 5]], "ranks": [[0, 1, 2]]}
    good["tensors"] = {"model": {"w": ["torch.float32", [0], 0]}}
    assert table_of_tree(good, 3)["model"]["w"] == Grid("torch.float32", ((0, 2, 4, 5),), (0, 1, 2))
    with pytest.raises(ValueError, match=reason):
        table_of_tree(good | change, 3)


def same_pieces(tensors, owners):
    entries = {str(n): ["torch.float32", [0], 0] for n in range(tensors)}
    return {"cuts": [[*range(len(owners) + 1)]], "ranks": [owners], "tensors": {"model": entries}}


def test_three_hundred_million_pieces_in_a_small_table_are_refused():
    with pytest.raises(ValueError, match="more than 268435456 pieces"):
        table_of_tree(same_pieces(18_000, [*range(16_384)]), 16_384)


@pytest.mark.slow
def test_a_large_model_spread_over_sixteen_thousand_ranks_is_read():
    table = table_of_tree(same_pieces(1057, [*range(16_384)]), 16_384)
    assert len(Pieces(table).infos(16_383)) == 1057


def test_more_pieces_than_one_file_can_hold_are_refused():
    with pytest.raises(ValueError, match="gives rank 3 140000 pieces of tensors, more than 131072"):
        table_of_tree(same_pieces(140, [0] * 500 + [3] * 1000), 4)
