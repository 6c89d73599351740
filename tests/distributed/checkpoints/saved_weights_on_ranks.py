"""Ranks evaluate saved weights, and refuse an optimizer that cannot be put back."""

import sys
from pathlib import Path

import torch
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Optimizer

from camshaft import ranks, supervised
from camshaft.handlers import Checkpoint

directory = Path(sys.argv[1])
DATA = [(torch.ones(4, 2), torch.zeros(4, 1)), (torch.eye(2), torch.ones(2, 1))]
mse = torch.nn.functional.mse_loss


class Inherits(Optimizer):
    def __init__(self, inner):
        self.inner = inner
        super().__init__(inner.param_groups, {})

    def step(self, closure=None):
        self.inner.step()


def build(wrap, seed, *handlers, make=lambda optimizer: optimizer):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    model = wrap(model) or model
    optimizer = make(SGD(model.parameters(), 0.1, momentum=0.9))
    return supervised(model, optimizer, mse).add(*handlers)


def loss(engine, **arguments):
    return float(engine.evaluate(DATA, **arguments).metrics["loss"])


with ranks.process_group():
    for wrap in (DistributedDataParallel, lambda model: fully_shard(model) and None):
        place = directory / wrap.__name__.strip("<>")
        engine = build(wrap, 0, Checkpoint(place))
        engine.run(DATA, max_epochs=2)
        trained = loss(engine)
        again = build(wrap, 1, Checkpoint(place, resume=True))
        before = loss(again)
        assert loss(again, checkpoint="latest") == trained != before
        assert loss(again) == before
    try:
        build(DistributedDataParallel, 0, Checkpoint(directory / "odd"), make=Inherits).run(
            DATA, max_epochs=1
        )
    except (TypeError, RuntimeError) as error:
        print(ranks.rank(), type(error).__name__, error)
