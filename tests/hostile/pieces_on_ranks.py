"""Run on two ranks: a sharded run that saves after each iteration, or goes on."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from camshaft import Events, ranks, supervised
from camshaft.handlers import Checkpoint, best, latest


def train(directory, until=4, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 7), nn.Dropout(0.3), nn.Linear(7, 1))
    if ranks.is_distributed():
        fully_shard(model)
    engine = supervised(model, torch.optim.Adam(model.parameters(), 0.1), nn.MSELoss())
    engine.add(
        Checkpoint(
            directory, when=Events.ITERATION_COMPLETED, keep=latest(3) | best(1, "loss"),
            retries=0, background=False, **options,
        )
    )  # fmt: skip
    inputs = torch.linspace(-1, 1, 36).reshape(9, 4)
    engine.run([(inputs, inputs[:, :1])] * 9, max_iterations=until)
    return model


if __name__ == "__main__":
    torch.set_num_threads(1)
    with ranks.process_group():
        train(Path(sys.argv[1]))
