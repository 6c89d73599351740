"""One subject in this process, which is to be a fresh one: prints its figures as JSON.

The process takes turns with those of the other subjects: it waits before each epoch.
"""

import argparse
import gc
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from importlib import import_module
from io import StringIO
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

IMPORTS = {
    "raw_loop": (),
    "camshaft_engine": ("camshaft", "camshaft.handlers"),
    "ignite_engine": ("ignite",),
    "lightning_trainer": ("lightning",),
    "accelerate_loop": ("accelerate",),
}
# Iterations of an epoch by the number of handlers: the more there are, the longer an iteration.
EMPTY = {0: 20_000, 1: 20_000, 10: 5_000, 100: 2_000}


def measure(subject: str, quick: bool) -> Iterator[tuple[str, list[float]]]:
    """CPU seconds that the imports add to torch, then CPU microseconds of an iteration by epoch."""
    torch = import_module("torch")
    torch.set_num_threads(1)
    began = process_time()
    for name in IMPORTS[subject]:
        module = import_module(name)
        for each in getattr(module, "__all__", ()):
            getattr(module, each)  # Camshaft's names are imported when they are asked for
        yield f"import {name}", [process_time() - began]
    task, module = import_module("task"), import_module(f"subjects.{subject}")

    def iteration(run: Callable[[Any, int], object], data: Any, epochs: int) -> list[float]:
        epochs = 3 if quick else epochs + 1
        gc.collect()
        with redirect_stdout(Terminal()), redirect_stderr(Terminal()):
            run(data, epochs)
            return [each / len(data) * 1e6 for each in data.laps.seconds(epochs)]

    with TemporaryDirectory() as directory:
        run = partial(module.everything, directory=Path(directory))
        yield "everything", iteration(run, task.TimedLoader(task.SAVE_EVERY), 4)
    yield "plain", iteration(module.plain, task.TimedLoader(500), 8)
    yield "pairs", iteration(module.plain, task.TimedPairs(500), 8)
    if hasattr(module, "empty"):
        for (count, length), kind in product(EMPTY.items(), ("firing", "idle")):
            run = partial(module.empty, handlers=count, every=1 if kind == "firing" else task.NEVER)
            yield f"{count} {kind}", iteration(run, task.TimedRange(length), 4)
    if subject == "raw_loop":
        yield "loading", iteration(module.loading, task.TimedPairs(500), 8)
        yield "frugal", iteration(module.frugal, task.TimedLoader(500), 8)


class Terminal(StringIO):
    """Takes what is drawn and drops it; every bar believes that somebody is looking."""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return len(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("subject", choices=IMPORTS)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    sys.stdin.readline()
    print(json.dumps(dict(measure(arguments.subject, arguments.quick))))
