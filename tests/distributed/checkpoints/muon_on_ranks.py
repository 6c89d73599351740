"""Run on ranks: Muon for the matrices of sharded blocks, AdamW for the rest; saved and resumed.

Arguments: the directory, the kind of mesh, and the iteration in which to be killed, or 0.
Says what the optimizers hold at the start and at the end, and what their steps send.
"""

import json
import os
import signal
import sys

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn.functional import mse_loss

from camshaft import Events, ranks, supervised
from camshaft.handlers import Checkpoint, ClipGradNorm, LRSchedule
from camshaft.handlers.schedules import cosine, warmup


class Block(nn.Module):
    """A matrix of more rows than columns, one of fewer, and vectors."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 15), nn.Linear(15, 6)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Model(nn.Module):
    """Blocks between a first and a last matrix, which AdamW trains."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(4, 6), nn.Linear(6, 1)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def optimizers_of(model):
    matrices = [each for each in model.blocks.parameters() if each.ndim == 2]
    taken = set(map(id, matrices))
    rest = [each for each in model.parameters() if id(each) not in taken]
    return {"muon": torch.optim.Muon(matrices, lr=0.02), "adamw": torch.optim.AdamW(rest, lr=0.01)}


def whole(value):
    value = value.full_tensor() if hasattr(value, "full_tensor") else value
    return value.tolist()


def held(model, optimizers):
    """The weights, and all that the optimizers hold of them, of all ranks."""
    told = {name: whole(each.detach()) for name, each in model.named_parameters()}
    for kind, optimizer in optimizers.items():
        for index, kept in optimizer.state_dict()["state"].items():
            told |= {f"{kind}.{index}.{key}": whole(each) for key, each in kept.items()}
    return told


def sent(optimizer):
    """How many messages one more step sends."""
    with CommDebugMode() as mode:
        optimizer.step()
    return mode.get_total_counts()


def main(directory, kind, killed_at):
    torch.manual_seed(0)
    mesh = None
    if kind == "hsdp":
        shape = (ranks.world_size() // 2, 2)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
    model = ranks.prepare(Model(), shard="blocks.*", mesh=mesh)
    optimizers = optimizers_of(model)
    generator = torch.Generator().manual_seed(ranks.rank())  # each rank reads its own
    data = [
        (torch.randn(4, 4, generator=generator), torch.randn(4, 1, generator=generator))
        for _ in range(3)
    ]
    engine = supervised(model, optimizers, mse_loss)
    engine.add(
        ClipGradNorm(1.0),
        LRSchedule(warmup(2).then(cosine())),
        Checkpoint(directory, when=Events.ITERATION_COMPLETED(every=2), resume=True),
    )
    told = {}
    engine.on(Events.STARTED)(
        lambda state: told.update(at=state.iteration, loaded=held(model, optimizers))
    )
    if killed_at:
        at = Events.ITERATION_COMPLETED(at=killed_at)
        engine.on(at)(lambda state: os.kill(os.getpid(), signal.SIGKILL))
    engine.run(data, max_epochs=3)
    told["end"] = held(model, optimizers)
    for each in model.parameters():
        each.grad = torch.ones_like(each)
    told["sent"] = {name: sent(each) for name, each in optimizers.items()}
    if ranks.rank() == 0:
        print(json.dumps(told), flush=True)


with ranks.process_group("gloo"):
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
