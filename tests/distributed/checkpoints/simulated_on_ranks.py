"""Run in one process, which is one rank after the other: real shards, saved and read again.

Torch's group "fake" sends nothing. So nobody can train, and whatever needs no message is real:
`parallelize_module`, `fully_shard`, the tables of pieces, and what a rank writes and reads.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

from camshaft.handlers.checkpoint.directory import TensorSource
from camshaft.handlers.checkpoint.format import TensorInfo
from camshaft.handlers.checkpoint.frozen import checksum
from camshaft.handlers.checkpoint.sharding import Layouts, Targets

NAMES = {1: ("data",), 2: ("data", "tensor"), 3: ("replicate", "data", "tensor")}


class Layers(nn.Module):
    """Linear layers of many sizes, whose numbers differ; every other one is cut by columns."""

    def __init__(self, sizes):
        super().__init__()
        self.layers = nn.ModuleList()
        for size in sizes:
            first, second = nn.Linear(3, size), nn.Linear(size, 3)
            with torch.no_grad():
                for each in (*first.parameters(), *second.parameters()):
                    each.copy_(torch.arange(float(each.numel())).reshape(each.shape) + size)
            self.layers += [first, second]


def on_mesh(net, shape, is_sharded):
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=NAMES[len(shape)])
    if len(shape) > 1:
        ways = ColwiseParallel(), RowwiseParallel()
        plan = {f"layers.{n}": ways[n % 2] for n in range(len(net.layers))}
        parallelize_module(net, mesh["tensor"], plan, src_data_rank=None)
    if is_sharded:
        for layer in net.layers:
            fully_shard(layer, mesh=mesh[NAMES[len(shape)][:-1] or NAMES[1]])
    return net


class Pieces(TensorSource):
    """The pieces of all ranks, in memory."""

    def __init__(self, table, pieces):
        self.table, self.pieces = table, pieces

    def __getitem__(self, name):
        return self.read(name, [(0, size) for size in self.table[name].shape])

    def __contains__(self, name):
        return name in self.table

    def __iter__(self):
        return iter(self.table)

    def __len__(self):
        return len(self.table)

    def info(self, name):
        return TensorInfo("float32", self.table[name].shape, 0)

    def fill(self, name, begin, into):
        whole = torch.full(self.table[name].shape, torch.nan)
        for piece in self.table[name].pieces():
            at = tuple(map(slice, piece.begin, piece.end))
            assert whole[at].isnan().all()
            whole[at] = self.pieces[piece.key("model", name)]
        into.copy_(whole[tuple(slice(a, a + n) for a, n in zip(begin, into.shape, strict=True))])


def ranks_of(shape, sizes, is_sharded):
    """The same model on each rank of a mesh, one after the other."""
    count = torch.Size(shape).numel()
    for rank in range(count):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=count)
        try:
            yield on_mesh(Layers(sizes), shape, is_sharded)
        finally:
            dist.destroy_process_group()
            _clear_sharding_prop_cache()


def saved(shape, sizes, is_sharded):
    """What all ranks write together, as one source."""
    digests, pieces, sums = set(), {}, 0
    whole = dict(Layers(sizes).named_parameters())
    for net in ranks_of(shape, sizes, is_sharded):
        tensors = dict(net.named_parameters())
        layout = Layouts().of({"model": tensors}, lambda *_: True)
        own = layout.own({"model": tensors})
        assert pieces.keys().isdisjoint(own)
        assert {key: each.shape for key, each in layout.infos.items()} == {
            key: each.shape for key, each in own.items()
        }
        pieces |= {key: each.clone() for key, each in own.items()}
        digests.add(layout.digest)
        sums = sums + torch.stack([checksum(each) for each in tensors.values()])
    assert len(digests) == 1
    source = Pieces(layout.table["model"], pieces)
    assert all(torch.equal(source[name], each) for name, each in whole.items()), shape
    if len(shape) == 1 or is_sharded:
        shards = [name for name, each in tensors.items() if hasattr(each, "device_mesh")]
        expected = torch.stack([checksum(each) for each in whole.values()])
        at = [[*whole].index(name) for name in shards]
        assert torch.equal(sums[at], expected[at])
    return source


def check_read(source, shape, sizes, is_sharded):
    """Each rank reads just what it holds."""
    for net in ranks_of(shape, sizes, is_sharded):
        tensors = dict(net.named_parameters())
        found = Targets({"model": net}).of("model", source)
        for name, each in tensors.items():
            one, other = (getattr(e, "_local_tensor", e) for e in (found[name], each))
            assert torch.equal(one, other), (shape, name)
            assert one.shape == other.shape


MESHES = [
    *(((3, 2), True), ((4, 2), True), ((2, 3), True), ((1, 4), True), ((1, 4), False)),
    *(((2, 3, 2), True), ((6,), True), ((2, 2, 1), True)),
]
"""Each with whether `fully_shard` splits what tensor parallelism has left."""


def main(count, *sizes):
    sizes = [*map(int, sizes)]
    for number, mesh in enumerate(MESHES[: int(count)]):
        source = saved(mesh[0], sizes, mesh[1])
        for shape, is_sharded in (mesh, MESHES[number - 1]):
            check_read(source, shape, sizes, is_sharded)
        print("same", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
