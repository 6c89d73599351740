"""Run under torchrun: a compiled DDP with BatchNorm, evaluated on unlike numbers of batches."""

import json
import os
import sys
from pathlib import Path

import ignite.distributed as idist
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from camshaft import Events, ranks, supervised
from camshaft.handlers import Validate

directory = Path(sys.argv[1])
idist.initialize("gloo")
rank, count = ranks.rank(), ranks.world_size()


def train(wrap):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    wrapped = wrap(DistributedDataParallel(model))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    engine = supervised(wrapped, optimizer, nn.functional.mse_loss, accumulate=2)
    uneven = [(torch.ones(2, 2), torch.ones(2, 1))] * (1 + 2 * rank)
    engine.add(Validate(uneven, when=Events.ITERATION_COMPLETED))
    losses = []
    engine.on(Events.ITERATION_COMPLETED)(lambda s: losses.append(float(s.metrics["val/loss"])))
    torch.manual_seed(rank)
    engine.run([(torch.randn(4, 2), torch.randn(4, 1)) for _ in range(3)], max_epochs=2)
    return losses, [each.tolist() for each in model.buffers()]


plain = train(lambda model: model)
result = {"plain": plain, "compiled": train(lambda model: torch.compile(model, backend="eager"))}
(directory / f"{rank}.json").write_text(json.dumps(result))
idist.barrier()
os._exit(0)  # gloo's threads may abort when they are torn down
