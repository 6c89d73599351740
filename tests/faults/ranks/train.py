"""Run as one of several ranks: train under DDP or FSDP2, and fail once at a named point.

A fault is `rank:kind:phase:iteration`, such as `1:kill:collective:5`. It happens once: a file
beside the run directory says so. At the end each rank writes what came out, to the last bit.
"""

import argparse
import hashlib
import json
import logging
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from camshaft import Events, Stage, ranks, seed_everything, supervised
from camshaft.handlers import (
    Checkpoint,
    JSONLines,
    Local,
    LocalCheckpoint,
    Mirror,
    RankLogs,
    StopOnSignal,
    Validate,
    latest,
)

INPUTS = torch.linspace(-1, 1, 288).reshape(48, 6)
PAIRS = TensorDataset(INPUTS, INPUTS[:, :2].cos())
LINEAR = ("Linear", "FSDPLinear")
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link"}


class Fault:
    """What happens once, at one point of one rank."""

    def __init__(self, text, marker):
        rank, self.kind, self.phase, iteration = text.split(":")
        self.iteration, self.marker = int(iteration), marker
        self.is_here = int(rank) == ranks.rank() and not marker.exists()
        self.is_due = self.phase.startswith("begin")

    def happen(self):
        if not self.is_here or self.marker.exists():
            return
        self.marker.write_text(f"{time.time()} {os.getpid()}")
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self.kind == "sleep":
            time.sleep(1000)
        elif self.kind == "preempt":
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            raise ValueError("the fault of this rank")

    def attach(self, engine):
        def act(state):
            self.happen()

        def due(state):
            self.is_due = True

        at = self.iteration
        if self.phase == "step":
            engine.on(Events.ITERATION_STARTED(at=at))(act)
        elif self.phase == "collective":  # the others wait in it, or have parts of it already
            engine.on(Events.ITERATION_STARTED(at=at))(self.in_backward)
        elif self.phase == "evaluation":
            engine.evaluation.on(Events.ITERATION_STARTED)(
                lambda state: state.parent and state.parent.iteration >= at and self.happen()
            )
        elif self.phase == "copy":
            engine.on(Events.ITERATION_COMPLETED(at=at), stage=Stage.MEASURE)(due)
            engine.on(Events.SAVING, stage=Stage.MEASURE)(
                lambda state: state.iteration >= at and self.happen()
            )
        else:
            engine.on(Events.ITERATION_COMPLETED(at=at), stage=Stage.MEASURE)(due)

    def in_backward(self, state):
        first = next(
            m for m in state.engine.objects["model"].modules() if type(m).__name__ in LINEAR
        )

        def watch(module, inputs, output):
            hook.remove()
            output.register_hook(lambda gradient: self.happen())

        hook = first.register_forward_hook(watch)

    def listen(self, places):
        """Happen before an operation that changes files: the one with a number, or of a name."""
        seen = 0

        def hear(event, arguments):
            nonlocal seen
            path = str(arguments[0]) if arguments else ""
            writes = event in CHANGES or (
                event == "open" and isinstance(arguments[2], int) and arguments[2] & 3
            )
            if not self.is_due or not writes or not path.startswith(places) or "logs" in path:
                return
            seen += 1
            if {
                "writing": path.endswith(".safetensors"),
                "manifest": path.endswith("manifest.json"),
                "rename": event == "os.rename",
            }.get(self.phase, self.phase in (f"operation {seen}", f"begin {seen}")):
                self.happen()

        if self.is_here:
            sys.addaudithook(hear)


def digest(value):
    """A checksum over nested values, bit by bit."""
    if isinstance(value, torch.Tensor):
        value = getattr(value.detach(), "_local_tensor", value.detach())  # of a sharded one
        value = value.contiguous().numpy().tobytes()
    elif isinstance(value, dict):
        value = [(key, digest(each)) for key, each in value.items()]
    elif isinstance(value, list | tuple):
        value = [digest(each) for each in value]
    return hashlib.sha256(repr(value).encode()).hexdigest()


def whole_of(weight):
    """A weight whose shards lie on all ranks, on each of them."""
    return weight.detach().full_tensor()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--fault", default="-1:none:none:1")
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--timeout", type=float, default=5)
    parser.add_argument("--delay", type=float, default=0, help="seconds before each iteration")
    parser.add_argument(
        "--local", help="each iteration to a disk of the host of {rank}, or of {half} of the ranks"
    )
    parser.add_argument("--own-disks", action="store_true", help="no directory is shared")
    parser.add_argument("--store", help="the address that a Mirror copies to")
    parser.add_argument("--preemptible", action="store_true")
    parser.add_argument("--samples", type=int, default=8, help="in the batches of all ranks")
    parser.add_argument("--sharded", action="store_true", help="FSDP2 in float64, no dropout")
    options = parser.parse_args()
    logging.basicConfig(level="INFO")
    with ranks.process_group(timeout=options.timeout):
        train(options)


def train(options):
    rank, directory = ranks.rank(), options.directory
    fault = Fault(options.fault, directory.with_name(f"{directory.name}.fault"))
    seed_everything(0)
    net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Dropout(0.2), nn.Linear(32, 2))
    if options.sharded:
        net[2].p = 0.0  # what is dropped would depend on the number of ranks
        model = net.double()
        for part in (net[0], net[3], net):
            fully_shard(part, mesh=init_device_mesh("cpu", (ranks.world_size(),)))
    else:
        model = DistributedDataParallel(net, bucket_cap_mb=0.0005)  # several buckets
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    pairs = TensorDataset(*(each.to(net[0].weight.dtype) for each in PAIRS.tensors))
    engine = supervised(model, optimizer, nn.functional.mse_loss)
    when, kind, places = Events.ITERATION_COMPLETED, Checkpoint, (str(directory),)
    saves = directory
    if options.local:
        place = options.local.format(rank=rank, half=rank % 2)
        places = (place,)
        if options.own_disks:
            kind, saves = LocalCheckpoint, Path(place)
            saves.mkdir(parents=True, exist_ok=True)
        else:
            engine.add(Local(place, when=when))
            when = Events.ITERATION_COMPLETED(every=8)
    engine.add(
        Validate(DataLoader(pairs, 24), name="val", when=Events.ITERATION_COMPLETED(every=2)),
        kind(saves, when=when, keep=latest(2), resume=True),
        JSONLines(saves / "rows.jsonl", when=Events.ITERATION_COMPLETED),
        RankLogs(saves / "logs"),
        fault,
    )
    if options.store:
        engine.add(Mirror(options.store, interval=0.1))
    if options.preemptible:
        engine.add(StopOnSignal())
    if options.delay:
        engine.on(Events.ITERATION_STARTED)(lambda state: time.sleep(options.delay))
    fault.listen(places)
    sampler = DistributedSampler(pairs)
    loader = DataLoader(pairs, options.samples // ranks.world_size(), sampler=sampler)
    began, seen = [], {}
    engine.on(Events.STARTED)(lambda state: began.append(state.iteration))

    @engine.on(Events.ITERATION_STARTED)
    def note(state):
        seen[state.iteration + 1] = state.batch[0][:, 0].tolist()  # no two samples have the same

    state = engine.run(loader, max_iterations=options.iterations)
    outcome = {
        "iteration": state.iteration,
        "weights": digest(net.state_dict()),
        "optimizer": digest(optimizer.state_dict()),
        "samples": seen,
        "values": [whole_of(each).tolist() for each in net.parameters()] if options.sharded else [],
        "drawn": (random.random(), torch.rand(1).item()),
        "rows": (saves / "rows.jsonl").read_text() if rank == 0 else None,
    }
    path = directory.with_name(f"{directory.name}.rank-{rank}.json")
    path.write_text(json.dumps({"began": began, **outcome}))


if __name__ == "__main__":
    main()
