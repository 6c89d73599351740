"""A script that calls `ranks.prepare` and knows nothing else of ranks, or the same by hand.

    train_anywhere.py directory alone|ddp|fsdp|offloaded prepare|hand max_steps

Every process that calls `prepare` draws other weights, and only rank 0's matter.
"""

import os
import sys
from contextlib import ExitStack

import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from camshaft import loader, ranks, supervised
from camshaft.handlers import Checkpoint, ClipGradNorm, JSONLines


class Net(nn.Module):
    """Two blocks, a frozen layer, tied weights and a buffer, outside of the blocks."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)
        self.last.weight = self.first.weight
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(2))
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.register_buffer("shift", torch.randn(6))

    def forward(self, x):
        x = self.frozen(self.first(x))
        for block in self.blocks:
            x = x + block(x)
        return self.last(x) + self.shift


def by_hand(model, way):
    if way == "ddp":
        return DistributedDataParallel(model)
    if way == "fsdp":
        for each in (*model.blocks, model):
            fully_shard(each)
    return model


def main(directory, way, who, max_steps):
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(int(os.environ.get("RANK", "0")) if who == "prepare" else 0)
    model = Net()
    if who == "prepare":
        on_cpu = {"offload_policy": CPUOffloadPolicy(pin_memory=False)}
        options = {"fsdp": {"shard": "blocks.*"}, "offloaded": {"shard": "blocks.*", **on_cpu}}
        model = ranks.prepare(model, **options.get(way, {}))
    else:
        model = by_hand(model, way)
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(*(torch.randn(36, 6, generator=generator) for _ in range(2)))
    train_loader = loader(data, 8, training=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    engine.add(
        *(ClipGradNorm(1.0), Checkpoint(directory, resume=True)),
        JSONLines(f"{directory}/rows.jsonl"),
    )
    state = engine.run(train_loader, max_steps=int(max_steps))
    print(type(model).__name__, ranks.world_size(), state.step)


if __name__ == "__main__":
    with ExitStack() as stack:
        if sys.argv[3] == "hand":
            stack.enter_context(ranks.process_group())
        main(*sys.argv[1:])
