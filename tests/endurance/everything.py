"""One process that does the same again and again with everything on, and says what it holds.

It prints that six times a task. What belongs to a start, such as caches and memory that is used
again, is there after the first sixth.
"""

import argparse
import ctypes
import gc
import json
import os
import sys
from collections import Counter
from pathlib import Path
from shutil import rmtree

import torch
from every_handler import every_handler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from camshaft import Events, supervised
from camshaft.handlers import Checkpoint, Export, best, latest

INPUTS = torch.linspace(-1, 1, 64).reshape(16, 4)
DATA = TensorDataset(INPUTS, INPUTS[:, :3].argmax(1))
EACH = Events.ITERATION_COMPLETED
KEPT = latest(2) | best(1, "val/loss")
LOOKS = 6


NAMES = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)


class MallInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in NAMES]


def bytes_of_malloc():
    """What C code holds: the bytes in use by malloc, in all arenas and in mappings of their own."""
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except AttributeError:  # no glibc, or an old one
        return 0
    ask.restype = MallInfo
    found = ask()
    return found.uordblks + found.hblkhd


def holdings():
    """Blocks and objects of Python, bytes of C, resident memory, threads, files."""
    gc.collect()
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return {
        "blocks": sys.getallocatedblocks(),
        "malloc": bytes_of_malloc(),
        "resident": int(status.split("VmRSS:")[1].split()[0]) * 1024,
        "threads": len(os.listdir("/proc/self/task")),
        "files": len(os.listdir("/proc/self/fd")),
        "types": dict(Counter(type(each).__qualname__ for each in gc.get_objects())),
    }


def everything(directory, row, save, resume=None):
    """An engine with all handlers that a long run may have, and the loader that it trains on."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    engine = supervised(model, optimizer, nn.functional.cross_entropy, accumulate=2)
    rows, saves = EACH(every=row) | Events.EPOCH_COMPLETED, EACH(every=save)
    checkpoint = Checkpoint(directory, when=saves, keep=KEPT, resume=resume)
    export = Export(directory / "best", keep=best(1, "val/loss"), when=saves)
    validation = DataLoader(DATA, 8)
    handlers = every_handler(directory, rows=rows, validation=validation, validations=saves)
    engine.add(*handlers, checkpoint, export)
    return engine, (checkpoint, export), DataLoader(DATA, 4, shuffle=True)


def leak(kind, held):
    """What a mistake would keep: about 100 bytes of Python or of C, a file, or an engine."""
    if kind == "python":
        held.append(bytes(70))
    if kind == "malloc":
        ctypes.CDLL(None).malloc(ctypes.c_size_t(100))
    if kind == "file":
        os.dup(1)
    if kind == "engine":
        held.append(everything(Path("never written"), 3, 5))


def iterations(number, directory, note, slip):
    """One run; it is looked at when nothing is being written."""
    engine, writers, loader = everything(directory, 20, 250)
    part = number // (250 * LOOKS) * 250
    looks = [1 + part * place for place in range(1, LOOKS + 1)]
    engine.on(EACH)(lambda state: slip())

    @engine.on(Events.ITERATION_STARTED(at=looks))
    def look(state):
        for each in writers:
            each.wait(state)
        note()

    engine.run(loader, max_iterations=looks[-1])


def again(number, note, slip, once):
    """Do it so many times; look now and then."""
    for count in range(1, number + 1):
        once()
        slip()
        if count % (number // LOOKS) == 0:
            note()


def one_run(engine, loader, directory):
    """An epoch and an iteration, with two saves."""
    engine.run(loader, max_iterations=5)
    rmtree(directory)  # what thousands of runs leave there would take longer and longer to look at


def new_engines(number, directory, note, slip):
    def once():
        engine, _, loader = everything(directory, 3, 5)
        one_run(engine, loader, directory)

    again(number, note, slip, once)


def one_engine(number, directory, note, slip):
    engine, _, loader = everything(directory, 3, 5)
    again(number, note, slip, lambda: one_run(engine, loader, directory))


def evaluations(number, directory, note, slip):
    engine, _, _ = everything(directory, 3, 5)
    loader = DataLoader(DATA, 8)
    again(number, note, slip, lambda: engine.evaluate(loader))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("tasks", nargs="+", metavar="task=number")
    parser.add_argument("--leak", default="")
    options = parser.parse_args()
    held = []
    engine, _, loader = everything(options.directory, 3, 5)
    one_run(engine, loader, options.directory)
    gc.collect()
    gc.freeze()  # what the first run has imported need not be looked at in each collection
    for each in options.tasks:
        task, number = each.split("=")
        globals()[task](
            int(number),
            options.directory / task,
            note=lambda: print(json.dumps({"task": task} | holdings()), flush=True),  # noqa: B023
            slip=lambda: leak(options.leak, held),
        )


if __name__ == "__main__":
    main()
