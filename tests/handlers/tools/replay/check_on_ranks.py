"""Run on two ranks: runs with checks and without, and a rank that computes wrong once."""

import json
import sys
from datetime import timedelta
from pathlib import Path
from shelve import Shelf

import ignite.distributed as idist
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from camshaft import ranks, supervised
from camshaft.handlers import ClipGradNorm, ReplayCheck

idist.initialize("gloo", timeout=timedelta(seconds=60))
rank = ranks.rank()


class Flips(torch.autograd.Function):
    """Changes one number of a rank, in one pass."""

    calls, at, where = Shelf({}), 0, ""  # a second pass takes no Shelf back

    @staticmethod
    def forward(ctx, x):
        Flips.calls["made"] += 1
        is_now = rank == 1 and (Flips.where, Flips.at) == ("loss", Flips.calls["made"])
        return x * (1 + 1e-3 * is_now)

    @staticmethod
    def backward(ctx, g):
        is_now = rank == 1 and (Flips.where, Flips.at) == ("gradient", Flips.calls["made"])
        return g * (1 + 1e-3 * is_now)


def train(*handlers, wrap, fault=("", 0), **arguments):
    Flips.calls["made"], (Flips.where, Flips.at) = 0, fault
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    model[2].register_forward_hook(lambda module, given, made: Flips.apply(made))
    model = wrap(model) or model
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    engine = supervised(model, optimizer, mse_loss, **arguments)
    engine.add(ClipGradNorm(1.0), *handlers)
    torch.manual_seed(rank)
    engine.run([(torch.randn(5, 4), torch.randn(5, 1)) for _ in range(8)], max_epochs=2)
    kept = [*model.state_dict().values(), *model.buffers()]
    return [getattr(each, "_local_tensor", each).clone() for each in kept]


def said(**arguments):
    try:
        train(ReplayCheck(every=4), **arguments)
    except (RuntimeError, ValueError) as error:
        return str(error)
    return ""


cases = {
    "ddp": {"wrap": DistributedDataParallel},
    "ddp accumulating": {"wrap": DistributedDataParallel, "accumulate": 3},
    "fsdp": {"wrap": fully_shard},
}
same = {}
for name, case in cases.items():
    one, two = train(**case), train(ReplayCheck(every=2), **case)
    same[name] = all(map(torch.equal, one, two))
faults = {
    "the loss": said(fault=("loss", 5), wrap=DistributedDataParallel),
    "the gradient of 1.weight": said(fault=("gradient", 5), wrap=DistributedDataParallel),
}
refused = said(wrap=fully_shard, accumulate=2)
result = {"same": same, "faults": faults, "refused": refused}
Path(sys.argv[1], f"rank-{rank}.json").write_text(json.dumps(result))
idist.finalize()
