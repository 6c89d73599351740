"""Run on any number of ranks: trains in parts, each up to an iteration, and tells what it saw."""

import json
import logging
import sys
from pathlib import Path

import numpy
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    WeightedRandomSampler,
)

from camshaft import (
    Engine,
    Events,
    LengthBatches,
    SeededSamples,
    SharedOrder,
    Update,
    loader,
    ranks,
    supervised,
)
from camshaft.handlers import Average, Checkpoint, Metrics

BATCH = 12
"""Samples of a batch over all ranks."""


class Samples(Dataset):
    """Samples that know their number; `noise` draws from all generators."""

    def __init__(self, count=87, noise=0.0):
        self.count, self.noise = count, noise

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        x = torch.tensor([index % 7, index % 5, index % 3], dtype=torch.float64)
        noise = torch.rand(3, dtype=torch.float64) + numpy.random.rand() if self.noise else 0.0
        return (x + self.noise * noise, torch.tensor(index)), (x.sum(0, keepdim=True) / 7 - 1)


class Shared:
    """A batch sampler of one's own, which shares each batch and does not say so."""

    def __init__(self, count):
        self.count = count
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.count // BATCH

    def __iter__(self):
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(self.epoch))
        for batch in order.split(BATCH)[: len(self)]:
            yield batch[ranks.rank() :: ranks.world_size()].tolist()


def place():
    return {"num_replicas": ranks.world_size(), "rank": ranks.rank()}


def plain(data, **options):
    size = BATCH // ranks.world_size()
    return DataLoader(data, size, sampler=DistributedSampler(data, **place()), **options)


def weighted(data):
    return WeightedRandomSampler([1.0 + number % 4 for number in range(len(data))], len(data))


def by_weights(data, **options):
    return loader(data, BATCH, training=True, sampler=weighted(data), **options)


def batch_sampler(data, **options):
    sampler = SharedOrder(weighted(data), seed=3)
    batches = BatchSampler(sampler, BATCH // ranks.world_size(), drop_last=False)
    return DataLoader(data, batch_sampler=batches, **options)


def like(data, **options):
    batches = LengthBatches([number % 9 for number in range(len(data))], BATCH, pool=3)
    return DataLoader(data, batch_sampler=batches, **options)


LOADERS = {
    "plain": plain,
    "loader": lambda data, **options: loader(data, BATCH, training=True, seed=4, **options),
    "whole batches": lambda data, **options: loader(
        data, BATCH, training=True, drop_last=True, **options
    ),
    "weighted": by_weights,
    "batch sampler": batch_sampler,
    "batch sampler of one's own": lambda data, **options: DataLoader(
        data, batch_sampler=Shared(len(data)), **options
    ),
    "of like length": like,
}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a = torch.nn.Linear(3, 5, dtype=torch.float64)
        self.b = torch.nn.Linear(5, 1, dtype=torch.float64)

    def forward(self, x, index):
        return self.b(self.a(x).tanh())


def count(output):
    """The targets of a batch: more of a larger number."""
    return output.target.abs().sum() + 1e-3 * len(output.target)


def mean_of(weight):
    """A loss that is a mean over the samples, or over their weights."""
    if weight is None:
        return torch.nn.functional.mse_loss
    return lambda made, target: (
        ((made - target) ** 2 * (target.abs() + 1e-3)).sum()
        / (target.abs().sum() + 1e-3 * len(target))
    )


def samples_in(output):
    return len(output["target"] if isinstance(output, dict) else output.target)


def built(how):
    model = Model()
    if ranks.world_size() > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
    weight = count if how == "counted" else None
    accumulate = 3 if how in ("accumulated", "each") else 1
    if how == "lbfgs":
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    if how == "by hand":
        update = Update(optimizer, model=model)

        def step(state, batch):
            (x, index), y = batch
            with update.micro_batch(state):
                loss = torch.nn.functional.mse_loss(model(x, index), y)
                update(state, loss)
            state.metrics["loss"] = loss.detach()
            return {"prediction": y, "target": y}

        return Engine(step, update, objects={"model": model, "optimizer": optimizer})
    options = {"accumulate": accumulate, "weight": weight}
    if how == "each":
        options = {"weight": weight}
        optimizer = Update(optimizer, model=model, accumulate=3, sync="close")
    if how == "split":
        options["split"] = 2
    return supervised(model, optimizer, mean_of(weight), device="cpu", **options)


def train(name, directory, stop_at, kind, how="", workers=0, samples=87, noise=0.0, **arguments):
    """Go on up to an iteration, or to the end; note what was seen, and the weights."""
    seen, losses = [], []
    engine = built(how)
    data = Samples(samples, noise)
    data = SeededSamples(data, 3) if noise else data
    engine.add(
        Average("loss", weight=samples_in if how == "by hand" else None),
        Metrics({"squares": lambda made, target: (target**2).mean()}, weight=samples_in),
        Checkpoint(directory / name, when=Events.COMPLETED, resume=True),
    )

    @engine.on(Events.ITERATION_COMPLETED)
    def note(state):
        index = state.batch[0][1].tolist()
        seen.append((state.iteration, [] if state.share == 0 else index))

    @engine.on(Events.EPOCH_COMPLETED(last=True))
    def note_loss(state):
        losses.append([float(state.metrics[n]) for n in ("loss/epoch", "squares")])

    if stop_at:
        stop = Events.ITERATION_COMPLETED(at=stop_at)
        engine.on(stop)(lambda state: state.interrupt("enough"))
        engine.on(stop)(lambda state: state.save("enough"))
    options = {"num_workers": workers} if workers else {"num_workers": 0}
    arguments = {"max_epochs": 3, **arguments}
    state = engine.run(LOADERS[kind](data, **options), **arguments)
    weights = [each.detach().flatten() for each in engine.objects["model"].parameters()]
    return {
        "seen": seen,
        "losses": losses,
        "weights": torch.cat(weights).tolist(),
        "step": state.step,
        "is_over": state.stop_reason == "max_epochs",
    }


class Told(logging.Handler):
    """Keeps what this rank warns of."""

    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


def main():
    directory, stage, stop_at, *names = sys.argv[1:]
    directory = Path(directory)
    told = Told()
    logging.getLogger("camshaft").addHandler(told)
    plan = json.loads((directory / "plan.json").read_text())
    found = {name: train(name, directory, int(stop_at), **plan[name]) for name in names or plan}
    found["told"] = told.messages
    (directory / f"{stage}-{ranks.rank()}.json").write_text(json.dumps(found))


with ranks.process_group():
    main()
    ranks.gathered(None)
