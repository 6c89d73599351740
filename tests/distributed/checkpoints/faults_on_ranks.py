"""Run on two ranks: what happens when a rank cannot write, sees another folder, or differs."""

import json
import os
import resource
import sys

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss

from camshaft import Engine, Events, ranks, supervised
from camshaft.handlers import Checkpoint
from camshaft.handlers.checkpoint import checkpoints


def attempt(run):
    try:
        return run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def engine_of(handler, model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    engine = supervised(model, optimizer, mse_loss)
    engine.add(handler)
    return engine


def sharded(width=600):
    torch.manual_seed(0)
    model = nn.Linear(width, width)
    fully_shard(model)
    return model


def batches(width=600):
    return [(torch.ones(1, width), torch.ones(1, width))] * 3


def rank_that_cannot_write(directory, on_failure):
    """Rank 1 may write only small files from the second save on."""
    handler = Checkpoint(
        directory, when=Events.ITERATION_COMPLETED, retries=0, on_failure=on_failure
    )
    engine = engine_of(handler, sharded())

    @engine.on(Events.ITERATION_STARTED(at=2))
    def limit(state):
        handler.wait(state)
        if ranks.rank() == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))

    said = attempt(lambda: engine.run(batches(), max_epochs=1).iteration)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    return said


def folders_of_their_own(directory):
    own = f"{directory}/host-{ranks.rank()}"
    os.makedirs(own)
    model = nn.Linear(2, 1)
    engine = Engine(lambda state, batch: None, Checkpoint(f"{own}/run"), objects={"model": model})
    return attempt(lambda: engine.run([1], max_epochs=1).iteration)


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def memory(directory, width):
    """How much the peak of this process's memory rises by a save, and by a load, of a model."""
    model = sharded(width)
    engine = Engine(lambda state, batch: None, objects={"model": model})
    engine.add(Checkpoint(directory, resume=True, background=False))
    before = peak()
    engine.run([1], max_epochs=1)
    saved = peak() - before
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak is counted anew
    return saved


def running_means(directory):
    """A batch norm under DDP has means of its own on each rank; its evaluation uses them."""
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    model = nn.parallel.DistributedDataParallel(inner, broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    engine = supervised(model, optimizer, mse_loss)
    engine.add(Checkpoint(directory, resume=True))
    generator = torch.Generator().manual_seed(ranks.rank())
    data = [
        (torch.randn(4, 3, generator=generator), torch.randn(4, 1, generator=generator))
        for _ in range(3)
    ]

    def run(epochs):
        engine.run(data, max_epochs=epochs)
        return [each.tolist() for each in inner.buffers()]

    return run


if __name__ == "__main__":
    torch.set_num_threads(1)
    with ranks.process_group():
        base = sys.argv[1]
        told = {
            "raise": rank_that_cannot_write(f"{base}/raise", "raise"),
            "warn": rank_that_cannot_write(f"{base}/warn", "warn"),
            "folders": folders_of_their_own(base),
            "whole": running_means(f"{base}/whole")(4),
            "part": running_means(f"{base}/part")(2),
            "rest": running_means(f"{base}/part")(4),
        }
        told["saved"] = [len(checkpoints(f"{base}/{each}")) for each in ("raise", "warn")]
        print(json.dumps(told), flush=True)
