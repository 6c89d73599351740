"""One model, alone or sharded in one of three ways, and the data that each rank reads of it."""

from contextlib import nullcontext

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import LayerNorm, Linear, Module
from torch.nn.functional import mse_loss

from camshaft import Engine, Update, ranks, supervised

WAYS = ("fsdp", "hsdp", "tp")
WIDE = {"dtype": torch.float64}


class Net(Module):
    """Layers of few rows, with tied weights, frozen ones, and some that no batch goes through."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = Linear(6, 8, **WIDE), Linear(8, 6, **WIDE)
        self.norm = LayerNorm(6, **WIDE)
        self.first, self.second = Linear(6, 6, **WIDE), Linear(6, 6, **WIDE)
        self.second.weight = self.first.weight
        self.frozen = Linear(6, 6, **WIDE).requires_grad_(False)
        self.unused = Linear(6, 6, **WIDE)
        self.head = Linear(6, 2, **WIDE)  # fewer rows than four ranks

    def forward(self, x):
        x = self.norm(self.frozen(x) + self.down(torch.tanh(self.up(x))))
        return self.head(self.second(torch.tanh(self.first(x))))


def mesh_of(way):
    """The mesh of all ranks, and of it what reads different data."""
    count = ranks.world_size()
    if way == "fsdp":
        mesh = init_device_mesh("cpu", (count,))
        return mesh, mesh
    names = ("replicate", "shard") if way == "hsdp" else ("data", "tensor")
    mesh = init_device_mesh("cpu", (count // 2, 2), mesh_dim_names=names)
    return mesh, mesh if way == "hsdp" else mesh["data"]


def sharded(way, net=None, **options):
    """The model on all ranks; `tp` splits a part of it twice, and says who reads what."""
    net = net or Net()
    mesh, data = mesh_of(way)
    if way == "tp":
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        parallelize_module(net, mesh["tensor"], plan)
    ranks.data_parallel(data)
    for part in (net.up, net.head, net):
        fully_shard(part, mesh=data, **options)
    return net


def batches(count=6, size=12):
    generator = torch.Generator().manual_seed(1)
    options = {"generator": generator, **WIDE}
    return [
        (torch.randn(size, 6, **options), torch.randn(size, 2, **options)) for _ in range(count)
    ]


def dealt(whole):
    """This rank's part of each batch."""
    group = ranks.data_group()
    place = slice(ranks.rank(group), None, ranks.world_size(group))
    return [(x[place], y[place]) for x, y in whole]


def adamw(net, **options):
    return torch.optim.AdamW(net.parameters(), lr=0.05, **options)


def by_hand(net, optimizer, accumulate):
    """An engine with a step of one's own."""
    update = Update(optimizer, model=net, accumulate=accumulate)

    def step(state, batch):
        x, y = batch
        if not state.training:
            return {"loss": mse_loss(net(x), y)}
        with update.micro_batch(state):
            loss = mse_loss(net(x), y)
            state.metrics["loss"] = loss.detach()
            update(state, loss)

    return Engine(step, update, objects={"model": net, "optimizer": optimizer})


def by_supervised(net, optimizer, accumulate):
    return supervised(net, optimizer, mse_loss, accumulate=accumulate)


def train(way, handlers=tuple, *, make=by_supervised, accumulate=1, optimizer=adamw, epochs=1):
    """A trained model, alone or sharded, and the state of its run."""
    net = Net() if way == "alone" else sharded(way)
    data = batches() if way == "alone" else dealt(batches())
    engine = make(net, optimizer(net), accumulate).add(*handlers())
    with ranks.alone() if way == "alone" else nullcontext():
        return net, engine.run(data, max_epochs=epochs)


def weights(net):
    """All weights by name, whole."""
    return {
        name: (each.full_tensor() if isinstance(each, DTensor) else each).detach().clone()
        for name, each in net.named_parameters()
    }


def check_equal(net, whole):
    """Two models have the same weights, but for the order of sums."""
    first, second = weights(net), weights(whole)
    assert first.keys() == second.keys()
    for name, each in first.items():
        assert torch.allclose(each, second[name], rtol=0, atol=1e-12), name


def check_like_alone(way, handlers=tuple, **options):
    """Weights and all metrics but the batch's own loss are those of one process; they are moved."""
    net, state = train(way, handlers, **options)
    whole, expected = train("alone", handlers, **options)
    check_equal(net, whole)
    assert not torch.equal(weights(whole)["up.weight"], Net().up.weight)
    assert state.metrics.keys() == expected.metrics.keys()
    for name, value in expected.metrics.items():
        if name != "loss":
            assert abs(float(state.metrics[name]) - float(value)) < 1e-12, name
    assert state.step == expected.step
    return state
