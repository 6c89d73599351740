"""Run on two ranks: compiled steps of a DistributedDataParallel and of a sharded model."""

import logging
import os
import sys
import warnings
from functools import partial
from pathlib import Path

import ignite.distributed as idist
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR

from camshaft import Events, ranks, supervised
from camshaft.handlers import ClipGradNorm, LRSchedule, Validate

warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)
idist.initialize("gloo")
rank = ranks.rank()
messages = []
handler = logging.Handler()
handler.emit = lambda record: messages.append(record.getMessage())
logging.getLogger("camshaft").addHandler(handler)


def sharded(model):
    mesh = init_device_mesh("cpu", (2,))
    for each in model:
        fully_shard(each, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(wrap, compile):
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    model = wrap(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    engine = supervised(model, optimizer, nn.functional.mse_loss, accumulate=2, compile=compile)
    torch.manual_seed(rank + 1)
    batches = [(torch.randn(n, 4), torch.randn(n, 2)) for n in (4, 4, 3)]
    graphs = []
    engine.add(
        ClipGradNorm(1.0),
        LRSchedule(partial(LambdaLR, lr_lambda=lambda n: 1 / (n + 1))),
        Validate(batches),
    )
    engine.on(Events.EPOCH_COMPLETED)(lambda s: graphs.append(counters["stats"]["unique_graphs"]))
    state = engine.run(batches, max_epochs=3)
    whole = [getattr(each, "full_tensor", each.clone)().detach() for each in model.parameters()]
    return whole, state.metrics, graphs


for wrap in (DistributedDataParallel, sharded):
    plain, expected, none = train(wrap, False)
    ours, metrics, graphs = train(wrap, {"backend": "aot_eager"})
    assert none == [0, 0, 0]
    assert graphs[0] >= 4, graphs
    assert graphs == graphs[:1] * 3, graphs
    torch.testing.assert_close(ours, plain)
    torch.testing.assert_close(float(metrics["val/loss"]), float(expected["val/loss"]))
    first, second = ranks.gathered([each.tolist() for each in ours])
    assert first == second  # the same on both ranks
assert not [each for each in messages if "broken" in each], messages
Path(sys.argv[1], str(rank)).write_text("done")
idist.barrier()
os._exit(0)  # gloo's threads may abort when they are torn down
