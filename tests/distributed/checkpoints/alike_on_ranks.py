"""Run on two ranks: whether they hold one model is compared at the first save."""

import json
import shutil
import sys
import warnings
from collections import Counter

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from camshaft import Engine, Events, ranks, supervised
from camshaft.handlers import Checkpoint, Export
from camshaft.handlers.checkpoint import checkpoints

EACH = Events.ITERATION_COMPLETED
MINE = []
"""A batch that each rank has otherwise."""


def attempt(act):
    try:
        return act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def engine_of(model, *handlers):
    return supervised(model, torch.optim.SGD(model.parameters(), 0.1), mse_loss).add(*handlers)


def same(kind=nn.Linear):
    torch.manual_seed(0)
    return nn.Sequential(kind(4, 4), nn.BatchNorm1d(4))


def trained(model, directory, kind=Checkpoint, data=MINE):
    """Train for three iterations that end by a save; the messages of the first save alone."""
    engine, sent = engine_of(model, kind(directory, when=EACH)), []
    engine.on(EACH)(lambda _: sent.append(Counter(CALLS)))
    engine.run(data * 3, max_epochs=1)
    return dict((sent[1] - sent[0]) - (sent[2] - sent[1]))


CALLS = Counter()


def count_messages():
    for name in ("gather", "broadcast", "all_gather_object", "broadcast_object_list"):

        def counted(*arguments, name=name, kept=getattr(dist, name), **options):
            CALLS[name] += 1
            return kept(*arguments, **options)

        setattr(dist, name, counted)


def forgotten(base):
    return trained(same(), f"{base}/forgotten")


def stages(base):
    torch.manual_seed(ranks.rank())
    return trained(nn.Linear(4, 4), f"{base}/stages", data=[(torch.ones(4, 4), torch.ones(4, 4))])


def exported(base):
    return trained(same(), f"{base}/exported", Export)


def other_forms(base):
    model = nn.Linear(4, 4, bias=ranks.rank() == 0)
    return trained(model, f"{base}/forms")


def wrapped(base):
    """DDP whose batch norms go by their own ranks: only buffers differ."""
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # a name of before
        model = DistributedDataParallel(same(), broadcast_buffers=False)
    found = trained(model, f"{base}/wrapped")
    means = ranks.gathered(model.module[1].running_mean.tolist())
    return [found, means[0] != means[1]]


def averaged_by_hand(base):
    model = same()

    def average(state):
        for each in model.parameters():
            each.grad = ranks.total(each.grad) / ranks.world_size()

    engine = engine_of(model, Checkpoint(f"{base}/by-hand", when=EACH))
    engine.on(Events.GRADIENTS_READY)(average)
    return engine.run(MINE * 2, max_epochs=1).iteration


class Pipe:
    """Two stages of the same form: the first one sends what it makes, and gets its gradient."""

    def __init__(self, directory, until):
        torch.manual_seed(ranks.rank())
        self.stage, self.number = nn.Linear(4, 4), ranks.rank()
        self.optimizer = torch.optim.Adam(self.stage.parameters(), 0.1)
        engine = Engine(self.step, objects={"stage": self.stage, "optimizer": self.optimizer})
        own = f"{directory}/stage-{self.number}"
        saved = {each.manifest.iteration: each.path for each in checkpoints(own)}
        common = set.intersection(*map(set, ranks.gathered([*saved])))
        engine.add(Checkpoint(own, when=EACH, resume=saved[max(common)] if common else None))
        with ranks.alone():
            engine.run([torch.full((2, 4), float(n)) for n in range(6)], max_iterations=until)
        self.end = [each.tolist() for each in self.stage.parameters()]

    def step(self, state, batch):
        self.optimizer.zero_grad()
        if self.number == 0:
            made, gradient = self.stage(batch), torch.empty(2, 4)
            dist.send(made.detach(), 1)
            dist.recv(gradient, 1)
            made.backward(gradient)
        else:
            given = torch.empty(2, 4)
            dist.recv(given, 0)
            loss = mse_loss(self.stage(given.requires_grad_()), batch)
            loss.backward()
            dist.send(given.grad, 0)
        self.optimizer.step()
        state.fire(Events.STEP_COMPLETED)


def stages_alone(base):
    whole = Pipe(f"{base}/whole", 6).end
    part = Pipe(f"{base}/parts", 3).end
    if ranks.rank() == 1:  # as if it had been killed before it could write the newest one
        shutil.rmtree(checkpoints(f"{base}/parts/stage-1")[-1].path)
    return [Pipe(f"{base}/parts", 6).end == whole, whole != part]


def main(base):
    count_messages()
    acts = (forgotten, stages, exported, other_forms, wrapped, averaged_by_hand, stages_alone)
    found = {act.__name__: attempt(lambda act=act: act(base)) for act in acts}
    ranks.any_rank(False)
    names = ("forgotten", "stages", "exported", "forms")
    found["written"] = [len(checkpoints(f"{base}/{name}")) for name in names]
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with ranks.process_group(timeout=60):
        MINE[:] = [(torch.full((4, 4), 1.0 + ranks.rank()).cumsum(0), torch.ones(4, 4))]
        main(sys.argv[1])
