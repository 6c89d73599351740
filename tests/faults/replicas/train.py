"""One replica of a small run, by the lighthouse, a folder, its name and how many there are.

It may kill itself: `--kill PLACE ITERATION`. It may be one of several ranks of its replica, which
split the model; then `--rank` says which of them kills itself.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from hashlib import sha256
from pathlib import Path
from threading import Timer

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset

from camshaft import Events, Stage, loader, ranks, supervised
from camshaft.engine.modules import locals_of
from camshaft.handlers import EMA, Checkpoint, ClipGradNorm, JSONLines, LRSchedule, Replicas, latest

SAMPLES, LENGTH = 75, 36
"""Not a multiple of the batch: 9 batches an epoch, the last one of 3 samples."""

parser = argparse.ArgumentParser()
for name in ("lighthouse", "folder", "name"):
    parser.add_argument(name)
parser.add_argument("count", type=int)
parser.add_argument("--kill", nargs=2, default=("", 0))
parser.add_argument("--rank", type=int, default=0)
parser.add_argument("--shards", type=int, default=6)
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--turned", action="store_true", help="read other data than the others")
given = parser.parse_args()
place, at = given.kill[0], int(given.kill[1])
folder = Path(given.folder)


def die_at(here, iteration):
    if place == here and iteration == at and ranks.rank() == given.rank:
        os.kill(os.getpid(), signal.SIGKILL)


class Rows(Dataset):
    inputs = torch.randn(SAMPLES, 6, generator=torch.Generator().manual_seed(1))
    if given.turned:
        inputs = inputs.flip(0)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self.inputs[index], self.inputs[index, :1], torch.tensor(index)


def loss_fn(output, target):
    die_at("forward", engine_at[0])
    return nn.functional.mse_loss(output, target)


@ranks.process_group("gloo")
def main():
    torch.manual_seed(0)
    name = f"{given.name}.{ranks.rank()}"
    model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.3), nn.Tanh(), nn.Linear(16, 1))
    if ranks.world_size() > 1:
        for each in (model[0], model[3], model):
            fully_shard(each)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    engine = supervised(model, optimizer, loss_fn, prepare_batch=lambda batch: batch[:2])
    engine.add(
        Replicas(given.lighthouse, shards=given.shards, timeout=10),
        LRSchedule(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, LENGTH)),
        ClipGradNorm(1.0),
        EMA(0.9),
        Checkpoint(
            folder,
            when=Events.ITERATION_COMPLETED(every=5) | Events.EPOCH_COMPLETED(last=True),
            keep=latest(3),
            resume=True,
        ),
        JSONLines(folder / "rows.jsonl", when=Events.ITERATION_COMPLETED),
    )

    @engine.on(Events.LOADING, stage=Stage.REPORT)
    def loaded(state):
        die_at("join", at if state.iteration else -1)  # the others wait for this replica

    @engine.on(Events.ITERATION_STARTED)
    def begin(state):
        engine_at[0] = state.iteration
        if place == "any" and state.iteration == at and ranks.rank() == given.rank:
            Timer(random.uniform(0, 0.03), os.kill, [os.getpid(), signal.SIGKILL]).start()
        time.sleep(given.pause)

    @engine.on(Events.GRADIENTS_READY)
    def ready(state):
        die_at("reduced", state.iteration)

    @engine.on(Events.STEP_COMPLETED)
    def note(state):
        die_at("commit", state.iteration)
        with folder.with_name(f"samples.{name}").open("a") as file:
            file.write(json.dumps([state.iteration, state.batch[2].tolist()]) + "\n")

    @engine.on(Events.ITERATION_COMPLETED, stage=Stage.REPORT)
    def end(state):
        die_at("row", state.iteration)

    def hear(event, arguments):
        if place == "save" and event == "os.rename" and "iteration-" in str(arguments[1]):
            die_at("save", at if engine_at[0] >= at else -1)
        if place == "part" and event == "open" and f"rank-{ranks.rank():05d}" in str(arguments[0]):
            die_at("part", at if engine_at[0] >= at else -1)

    sys.addaudithook(hear)
    folder.with_name(f"here.{name}").touch()
    while (
        len([*folder.parent.glob("here.*")]) < given.count * ranks.world_size()
    ):  # all begin together
        time.sleep(0.005)
    if ranks.world_size() > 1:
        data = loader(Rows(), 8, training=True, num_workers=0)
    else:
        data = DataLoader(Rows(), 8, shuffle=True)
    engine.run(data, max_iterations=LENGTH)
    digest = sha256()
    for each in engine.objects.values():
        digest.update(repr(each.state_dict()).encode())
    for weight in locals_of([*engine.objects["model"].state_dict().values()]):
        digest.update(weight.numpy().tobytes())
    print(json.dumps([digest.hexdigest(), torch.rand(1).item()]))


torch.set_num_threads(1)
engine_at = [0]
main()
