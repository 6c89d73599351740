"""Run on two ranks: what is checked when ranks save together, and when they choose a checkpoint."""

import errno
import json
import os
import sys
from collections import Counter

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss

from camshaft import Events, ranks, supervised
from camshaft.handlers import Checkpoint
from camshaft.handlers.checkpoint import checkpoints
from camshaft.handlers.checkpoint.directory import Checkpoints, chosen

UNREAD = []
"""Parts of the names of files that this rank's disk does not give."""
PREADV = os.preadv


def preadv(descriptor, *arguments):
    name = os.readlink(f"/proc/self/fd/{descriptor}")
    if any(each in name for each in UNREAD):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return PREADV(descriptor, *arguments)


os.preadv = preadv


def attempt(act):
    try:
        return act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def engine_of(directory, model=None, **options):
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(4, 300), nn.Linear(300, 4))
    fully_shard(model)
    engine = supervised(model, torch.optim.SGD(model.parameters(), 0.1), mse_loss)
    return engine.add(Checkpoint(directory, when=Events.ITERATION_COMPLETED, **options))


def run(engine, until):
    data = [(torch.ones(1, 4), torch.ones(1, 4))] * 9
    return engine.run(data, max_iterations=until).iteration


def messages_of(act):
    """What `act` gives, and how often this rank calls each function that sends something."""
    names = ("broadcast", "gather", "all_reduce", "all_gather")
    names += ("broadcast_object_list", "gather_object", "all_gather_object")
    calls, kept = Counter(), {name: getattr(dist, name) for name in names}

    def counted(name):
        def call(*arguments, **options):
            calls[name] += 1
            return kept[name](*arguments, **options)

        return call

    for name in names:
        setattr(dist, name, counted(name))
    try:
        found = attempt(act)
    finally:
        for name in names:
            setattr(dist, name, kept[name])
    return found, dict(calls)


def choices(base):
    """The newest of three checkpoints as it is, with damage in the two newest, and unread."""
    directory = f"{base}/run"
    run(engine_of(directory), 3)

    def newest():
        found = chosen(lambda verify: Checkpoints(directory, verify).latest())
        return found.manifest.iteration

    found = {"whole": messages_of(newest)}
    if ranks.rank() == 1:
        UNREAD.append("iteration-0000000003/rank-00001")
    found["unread"] = messages_of(newest)
    found["resume"] = attempt(lambda: run(engine_of(directory, resume=True), 5))
    UNREAD.clear()
    ranks.any_rank(False)
    if ranks.rank() == 0:
        for saved in checkpoints(directory)[1:]:
            with open(saved.path / "rank-00001.safetensors", "r+b") as file:
                file.seek(-1, 2)
                file.write(b"\x99")
    ranks.any_rank(False)
    return found | {"damaged": messages_of(newest)}


class Plain:
    """An object without tensors, which no table of pieces tells of."""

    def state_dict(self):
        return {"count": 1}

    def load_state_dict(self, saved):
        pass


def disagreements(base):
    """A rank that saves another object, and one whose model lies otherwise."""

    def other_object():
        engine = engine_of(f"{base}/objects")
        if ranks.rank() == 1:
            engine.objects["more"] = Plain()
        return run(engine, 1)

    def other_type():
        model = nn.Sequential(nn.Linear(4, 4))
        engine = engine_of(f"{base}/types", model)
        engine.objects["model"].register_buffer(
            "extra", torch.zeros(2, dtype=[torch.float32, torch.float64][ranks.rank()])
        )
        return run(engine, 1)

    return {"objects": attempt(other_object), "types": attempt(other_type)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    with ranks.process_group(timeout=30):
        told = choices(sys.argv[1]) | disagreements(sys.argv[1])
        print(json.dumps(told), flush=True)
