"""A small model in every layout of its weights over ranks, and the data of each rank."""

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from camshaft import ranks, supervised

FORMS = {1: ["plain"], 2: ["FSDP"], 4: ["FSDP", "HSDP", "TP x FSDP"]}
"""By number of ranks: the layouts that are possible."""
EXACT = 1e-12


class Net(nn.Module):
    """Tied weights, a layer of three rows, a frozen one, and buffers of three kinds."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.frozen = nn.Linear(6, 10), nn.Linear(10, 8)
        self.head, self.tied = nn.Linear(8, 3), nn.Linear(8, 3)
        self.tied.weight = self.head.weight
        self.frozen.requires_grad_(False)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
        self.register_buffer("passes", torch.tensor(0), persistent=False)
        self.double()

    def forward(self, x):
        if self.training:
            self.passes += 1
            self.mean.mul_(0.5).add_(0.5)
        x = torch.relu(self.frozen(torch.relu(self.first(x - self.mean))))
        return self.head(x) + self.tied(x).tanh()


PLAN = {"first": ColwiseParallel(), "frozen": RowwiseParallel()}


def sharded(model, form, plan=PLAN):
    """The model in a layout, and the number and count of the share of the data."""
    if form == "plain":
        return model, 0, 1
    if form == "FSDP":
        mesh = init_device_mesh("cpu", (ranks.world_size(),), mesh_dim_names=("data",))
    else:
        names = ("data", "tensor") if form == "TP x FSDP" else ("replicas", "data")
        mesh = init_device_mesh("cpu", (2, ranks.world_size() // 2), mesh_dim_names=names)
    shares = mesh
    if form == "TP x FSDP":
        parallelize_module(model, mesh["tensor"], plan)
        shares = mesh["data"]
    ranks.data_parallel(shares)
    fully_shard(next(model.children()), mesh=shares)
    fully_shard(model, mesh=shares)
    if form == "TP x FSDP":
        return model, mesh["data"].get_local_rank(), mesh["data"].size()
    return model, ranks.rank(), ranks.world_size()


def batches(count=6, size=8, seed=1):
    """Global batches, the same on every rank."""
    generator = torch.Generator().manual_seed(seed)
    options = {"generator": generator, "dtype": torch.float64}
    return [
        (torch.randn(size, 6, **options), torch.randn(size, 3, **options)) for _ in range(count)
    ]


def share(data, number, count):
    """This rank's part of each batch."""
    return [tuple(each.chunk(count)[number] for each in batch) for batch in data]


def build(form, *handlers, lr=0.1, **options):
    """An engine that trains the model in a layout, and its data for training and validation."""
    model, number, count = sharded(Net(), form)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr, 0.9)
    engine = supervised(model, optimizer, nn.functional.mse_loss, device="cpu", **options)
    own = share(batches(), number, count), share(batches(3, seed=2), number, count)
    return engine.add(*(each(own[1]) if callable(each) else each for each in handlers)), *own


def whole(module):
    """The weights that are saved, each put together."""
    return {
        name: (each.full_tensor() if hasattr(each, "full_tensor") else each).detach().clone()
        for name, each in module.state_dict().items()
    }


def check(found, wanted):
    """Equal within 1e-12, infinities included."""
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    for name, each in wanted.items():
        torch.testing.assert_close(found[name], each, rtol=0, atol=EXACT, msg=name)
