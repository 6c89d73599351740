"""Run under torchrun: write down the rates that each rank's steps used, interrupted or not."""

import hashlib
import json
import sys
from pathlib import Path

import ignite.distributed as idist
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import OneCycleLR

from camshaft import Events, supervised
from camshaft.handlers import Checkpoint, Freeze, LRSchedule, parameter_groups
from camshaft.handlers.schedules import linear

directory, stop_at = Path(sys.argv[1]), int(sys.argv[2])
idist.initialize("gloo")
rank = idist.get_rank()


def go(stop_at=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    groups = parameter_groups(model, {"0.*": {"lr": 0.01, "name": "first"}})
    optimizer = torch.optim.SGD(groups, 0.1, momentum=0.9)
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    engine = supervised(wrapped, optimizer, nn.functional.mse_loss, accumulate=2)
    engine.add(
        Freeze("0.*", until=Events.EPOCH_STARTED(at=2)),
        LRSchedule(lambda o, horizon: OneCycleLR(o, [0.1, 0.2], total_steps=horizon.steps)),
        LRSchedule(linear(0.5), field="weight_decay"),
        Checkpoint(directory / "run", resume=True),
    )
    rows = []

    @engine.on(Events.STEP_COMPLETED)
    def look(state):
        rows.append([state.metrics["lr/first"], state.metrics["lr/default"]])

    if stop_at:
        engine.on(Events.ITERATION_COMPLETED(at=stop_at))(lambda state: state.interrupt("pause"))
    generator = torch.Generator().manual_seed(rank)
    batches = [(torch.randn(2, 2, generator=generator), torch.ones(2, 1)) for _ in range(5)]
    engine.run(batches, max_epochs=3)
    content = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    return rows, hashlib.sha256(content).hexdigest()


used = go(stop_at)[0] if stop_at else []
more, weights = go()
result = {"rates": used + more, "weights": weights}
(directory / f"rank-{rank}.json").write_text(json.dumps(result))
idist.barrier()
idist.finalize()
