"""Prints what handlers cost on thousands of ranks: one real rank in a group that is not there.

torch's fake process group has any size and sends nothing; what comes in is what was sent. So the
number and size of messages, and the time that this process spends on them, are those of rank 0 (or
another) of a run of so many ranks. The time that messages are under way is not in them.

    python tests/distributed/cost/simulated.py 4 4096 16384 [--rank 1]
"""

import argparse
import json
import subprocess
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import torch.distributed as dist
from everything import REPORTS, SIGNALS, VALIDATION, counted, everything
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed import fake_pg  # noqa: F401  # makes it known

from camshaft import Events, Stage
from camshaft.handlers.checkpoint.format import Grid, table_as_tree
from camshaft.handlers.checkpoint.format.pieces import table_of_tree

QUIET = 12
"""An iteration in which no handler asks other ranks."""
ROWS = {
    "an iteration": QUIET,
    "a question about signals": SIGNALS[0],
    "a report": REPORTS[0],
    "a validation": VALIDATION,
}
WIDTH, INNER, WORDS, LAYERS, KEYS = 8192, 28_672, 128_256, 80, 1024
LAYER = {
    **{"q": (WIDTH, WIDTH), "k": (KEYS, WIDTH), "v": (KEYS, WIDTH), "o": (WIDTH, WIDTH)},
    **{"gate": (INNER, WIDTH), "up": (INNER, WIDTH), "down": (WIDTH, INNER)},
    **{"norm_1": (WIDTH,), "norm_2": (WIDTH,)},
}
SHAPES = {f"{n}.{name}": shape for n in range(LAYERS) for name, shape in LAYER.items()}
SHAPES |= {"embedding": (WORDS, WIDTH), "norm": (WIDTH,), "head": (WORDS, WIDTH)}


def simulated(directory, size):
    """The run with every handler on; gradients are taken for averaged, as the group gives none."""
    # A save would find that the other ranks have written nothing.
    engine, data = everything(directory, size, saves=False)
    models = (getattr(each, "model", None) for each in engine.handlers.values())
    model = next(each for each in models if isinstance(each, DistributedDataParallel))
    model.register_comm_hook(None, averaged)
    model._comm_hooks.clear()  # it stands for DDP's own averaging
    return engine, data


def averaged(_, bucket):
    future = Future()
    dist.all_reduce(bucket.buffer())
    future.set_result(bucket.buffer())
    return future


def timed(engine, data):
    """The seconds from the start of each iteration to that of the next."""
    starts = []
    note = engine.on(Events.ITERATION_STARTED, stage=Stage.MEASURE)
    note(lambda _: starts.append(perf_counter()))
    engine.run(data, max_epochs=1)
    return [None, *(after - before for before, after in pairwise(starts))]


def rank_of(size, rank):
    """By row: messages, bytes sent, bytes received, and seconds beyond those of an iteration."""
    dist.init_process_group("fake", rank=rank, world_size=size, store=dist.HashStore())
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        messages = counted(*simulated(Path(one), size), rank).found
        seconds = timed(*simulated(Path(other), size))
    quiet = median(seconds[n] for n in range(3, 10))
    found = {}
    for name, place in ROWS.items():
        ours = [each for each in messages.get(place, []) if each.by != "torch"]
        sums = (sum(each.bytes for each in ours), sum(each.received for each in ours))
        took = quiet if place == QUIET else seconds[place] - quiet
        found[name] = (len(ours), *sums, took)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="+", type=int)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.json:
        print(json.dumps(rank_of(options.sizes[0], options.rank)))
        return
    print_calls(options)
    print_tables(options.sizes)


def print_calls(options):
    """The cost of handlers on one rank."""
    print("| ranks | in | messages | bytes sent | bytes received | ms of the host |")
    print("|---|---|---|---|---|---|")
    for size in options.sizes:  # each in a process of its own
        command = [sys.executable, __file__, str(size), "--rank", str(options.rank), "--json"]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        for name, (number, sent, received, seconds) in json.loads(output.splitlines()[-1]).items():
            took = f"{seconds * 1e3:.1f}"
            print(f"| {size:,} | {name} | {number} | {sent:,} | {received:,} | {took} |")


def print_tables(sizes):
    """The table of pieces of a checkpoint: of a model such as Llama 3 70B and of AdamW."""
    print("\n| ranks that share | pieces | bytes of the table | s to make it | s to read it |")
    print("|---|---|---|---|---|")
    for size in sizes:
        began = perf_counter()
        table = {
            "model": {name: grid(shape, size) for name, shape in SHAPES.items()},
            "train": {
                f"optimizer.state.{name}.{moment}": grid(shape, size)
                for name, shape in SHAPES.items()
                for moment in ("exp_avg", "exp_avg_sq")
            },
        }
        text = json.dumps(table_as_tree(table))
        pieces = sum(len(each.owners) for grids in table.values() for each in grids.values())
        made = perf_counter()
        try:
            assert table_of_tree(json.loads(text), size) == table
            took = f"{perf_counter() - made:.1f}"
        except ValueError as error:
            took = str(error)
        print(f"| {size:,} | {pieces:,} | {len(text):,} | {made - began:.1f} | {took} |")


def grid(shape, size):
    """How `fully_shard` cuts a tensor: along its first dimension, over so many ranks."""
    step = -(-shape[0] // size)
    rows = (*range(0, shape[0], step), shape[0])
    return Grid("torch.float32", (rows, *((0, n) for n in shape[1:])), tuple(range(len(rows) - 1)))


if __name__ == "__main__":
    main()
