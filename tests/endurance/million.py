"""One run with everything on that says what it holds at the iterations it is told, up to a million.

The run directory stays, and so does a copy of it as it was at the first of them.
"""

import argparse
import json
import os
import time
from collections import Counter
from pathlib import Path
from shutil import copytree

import torch
from everything import everything, holdings
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Events

ROW, SAVE, EPOCH = 100, 1000, 1000
CHANCE = torch.Generator().manual_seed(0)
INPUTS = torch.rand(4 * EPOCH, 4, generator=CHANCE)
DATA = TensorDataset(INPUTS, torch.randint(3, (4 * EPOCH,), generator=CHANCE))
"""Nothing to learn: in a million iterations the gradients of a task would vanish, to SpikeGuard."""


def ready(directory, resume=None):
    """An engine with all handlers, those of its handlers that write, and what it trains on."""
    engine, writers, _ = everything(directory, ROW, SAVE, resume)
    return engine, writers, DataLoader(DATA, 4, shuffle=True)


def files(directory):
    """The number of files of a run directory and their bytes, by what they belong to."""
    number, size = Counter(), Counter()
    for each in directory.rglob("*"):
        if each.is_file():
            name = each.relative_to(directory).parts[0]
            kind = "checkpoints" if (directory / name / "manifest.json").exists() else name
            number[kind] += 1
            size[kind] += each.stat().st_size
    return {"number": dict(number), "size": dict(size)}


def children():
    """The number of processes that threads of this one have started and that are there still."""
    each = Path("/proc/self/task").glob("*/children")
    return sum(len(task.read_text().split()) for task in each)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("looks", nargs="+", type=int, metavar="iteration")
    options = parser.parse_args()
    directory, looks = options.directory, options.looks
    engine, writers, loader = ready(directory)

    @engine.on(Events.ITERATION_STARTED(at=[each + 1 for each in looks]))
    def look(state):
        for each in writers:
            each.wait(state)
        if state.iteration == looks[0] + 1:
            copytree(directory, directory.with_name(directory.name + "-early"))
        held = holdings() | {"children": children(), "cpu": time.process_time()}
        held["objects"] = sum(held.pop("types").values())
        line = {"iteration": state.iteration - 1, **held, "files of the run": files(directory)}
        print(json.dumps(line), flush=True)

    print(json.dumps({"process": os.getpid()}), flush=True)
    engine.run(loader, max_iterations=looks[-1] + 1)


if __name__ == "__main__":
    main()
