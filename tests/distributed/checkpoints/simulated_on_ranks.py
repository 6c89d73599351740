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

from camshaft.handlers.checkpoint.directory import StoredTensor
from camshaft.handlers.checkpoint.sharding import Layout
from camshaft.handlers.checkpoint.weights import checksum, load_weights

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


class Pieces:
    """The pieces of all ranks, in memory in place of files."""

    def __init__(self, pieces):
        self.pieces = pieces

    def fill(self, into, file, name, begin):
        at = tuple(slice(a, a + n) for a, n in zip(begin, into.shape, strict=True))
        assert self.pieces[name][at].shape == into.shape
        assert into.isnan().all()
        into.copy_(self.pieces[name][at])


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
        layout = Layout()
        layout.update({"model": tensors}, lambda *_: True)
        own = layout.own({"model": tensors})
        assert pieces.keys().isdisjoint(own)
        assert {key: each.shape for key, each in layout.infos.items()} == {
            key: each.shape for key, each in own.items()
        }
        pieces |= {key: each.clone() for key, each in own.items()}
        digests.add(layout.digest)
        sums = sums + torch.stack([checksum(each) for each in tensors.values()])
    assert len(digests) == 1
    files, table = Pieces(pieces), layout.table["model"]
    source = {n: StoredTensor(grid.info, files, "model", n, grid) for n, grid in table.items()}
    for name, each in whole.items():
        source[name].fill(found := torch.full_like(each, torch.nan))
        assert torch.equal(found, each), shape
    if len(shape) == 1 or is_sharded:
        shards = [name for name, each in tensors.items() if hasattr(each, "device_mesh")]
        expected = torch.stack([checksum(each) for each in whole.values()])
        at = [[*whole].index(name) for name in shards]
        assert torch.equal(sums[at], expected[at])
    return source


def check_read(source, shape, sizes, is_sharded):
    """Each rank reads just what it holds."""
    for net in ranks_of(shape, sizes, is_sharded):
        own = {name: getattr(e, "_local_tensor", e).detach() for name, e in net.named_parameters()}
        before = {name: each.clone() for name, each in own.items()}
        for each in own.values():
            each.fill_(torch.nan)
        load_weights(net, source)
        for name, each in own.items():
            assert torch.equal(each, before[name]), (shape, name)


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
