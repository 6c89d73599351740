"""The training script to which the faults happen: all that a run can remember, on real images.

It augments in the data set with all three generators, drops out, normalises by batch, accumulates,
schedules, averages weights in a handler's memory, validates, waits for improvement and logs every
iteration. At the end it writes what came out, to the last bit, as `result.json`.
"""

import argparse
import hashlib
import json
import random
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

from camshaft import Events, supervised
from camshaft.engine.state.generators import capture_generators
from camshaft.handlers import (
    CSV,
    Checkpoint,
    ClipGradNorm,
    EarlyStopping,
    JSONLines,
    LRSchedule,
    Metrics,
    StopOnSignal,
    TensorBoard,
    Validate,
    best,
    latest,
)
from camshaft.handlers.loggers import Histogram, Image

IMAGES, LABELS = load_digits(return_X_y=True)
PIXELS = torch.tensor(IMAGES, dtype=torch.float32) / 16
CLASSES = torch.tensor(LABELS)
KINDS = ("scalars", "images", "histograms")


class Augmented(Dataset):
    """Digits with noise; the third part of a sample is its number."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        noise = 0.1 * torch.randn(64) + random.gauss(0, 0.1) + numpy.random.normal(0, 0.1)
        return PIXELS[index] + noise.float(), CLASSES[index], index


class Stream(IterableDataset):
    """The same without an index."""

    def __init__(self, length):
        self.samples = Augmented(length)

    def __iter__(self):
        return (self.samples[index] for index in range(len(self.samples)))


@dataclass
class Average:
    weights: dict = field(default_factory=dict)
    count: int = 0


class WeightAverage:
    """A handler whose memory is as large as the model."""

    def __init__(self, model):
        self.model = model

    def attach(self, engine):
        engine.on(Events.STEP_COMPLETED)(self.add)

    def add(self, state):
        average = state.recall(self, Average)
        average.count += 1
        for name, weight in self.model.named_parameters():
            old = average.weights.get(name, weight.detach())
            average.weights[name] = old.lerp(weight.detach(), 0.1)


def note_batch(state):
    """The order of the samples as one number, for the log."""
    numbers = state.batch[2].tolist()
    state.metrics["order"] = float(sum(n * 101**i for i, n in enumerate(numbers)) % 2**53)


def show(model):
    """Notes pictures now and then, in other iterations than those with a row of numbers alone."""

    def note(state):
        state.metrics["digits"] = Image(state.batch[0][:4].reshape(-1, 1, 8, 8))
        state.metrics["weights"] = Histogram.of(model[0].weight)

    return note


def board(directory):
    """What TensorBoard's own reader finds: the steps and contents of each name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory), size_guidance=dict.fromkeys(KINDS, 0)).Reload()
    read = {"scalars": events.Scalars, "images": events.Images, "histograms": events.Histograms}
    return {
        f"{kind}/{name}": [digest(repr(replace(each, wall_time=0))) for each in of(name)]
        for kind, of in read.items()
        for name in events.Tags()[kind]
    }


def spoil(what, state, optimizer, scheduler):
    """Change one part of a run that was resumed, as if it had not been saved."""
    memory = state.memory.saved | state.memory.loaded
    stored = state.control.position.rng_when_stored
    {
        "python": lambda: setattr(stored, "python", capture_generators().python),
        "numpy": lambda: setattr(stored, "numpy", capture_generators().numpy),
        "torch": lambda: setattr(stored, "torch", capture_generators().torch),
        "worker seed": lambda: setattr(state.control.position, "seed", 1),
        "pass": lambda: setattr(state.control.position, "rng", capture_generators()),
        "momentum": lambda: [s["momentum_buffer"].zero_() for s in optimizer.state.values()],
        "schedule": lambda: setattr(scheduler, "last_epoch", 0),
        "average": lambda: memory["WeightAverage"].update(weights={}),
        "patience": lambda: memory["EarlyStopping(val/loss)"].update(waited=0, best=-1.0),
        "metrics": state.metrics.clear,
        "step": lambda: setattr(state, "step", 0),
    }[what]()


def digest(value):
    """A checksum over nested values, bit by bit."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous().numpy().tobytes()
    elif isinstance(value, dict):
        value = [(key, digest(each)) for key, each in value.items()]
    elif isinstance(value, list | tuple):
        value = [digest(each) for each in value]
    return hashlib.sha256(repr(value).encode()).hexdigest()


def main(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=52)
    parser.add_argument("--validate-every", type=int, default=5)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--foreground", action="store_true")
    parser.add_argument("--retries", type=int, default=3)
    parser.add_argument("--on-failure", default="raise")
    parser.add_argument("--delay", type=float, default=0, help="seconds before each iteration")
    parser.add_argument("--logs", action="store_true", help="all of them, with pictures")
    parser.add_argument("--until", type=int)
    parser.add_argument("--spoil")
    parser.add_argument("--tell", type=Path, help="where to write each iteration's number")
    options = parser.parse_args(arguments)

    random.seed(options.seed)
    numpy.random.seed(options.seed)
    torch.manual_seed(options.seed)
    model = nn.Sequential(
        *(nn.Linear(64, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 10))
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 21)

    engine = supervised(
        *(model, optimizer, nn.functional.cross_entropy),
        accumulate=options.accumulate,
        prepare_batch=lambda batch: batch[:2],
    )
    validate = Events.ITERATION_COMPLETED(every=options.validate_every) | Events.EPOCH_COMPLETED
    save = Events.EPOCH_COMPLETED(last=True)
    if options.save_every:
        save = save | Events.ITERATION_COMPLETED(every=options.save_every)
    each = Events.ITERATION_COMPLETED
    engine.on(each)(note_batch)
    rows = each | Events.EPOCH_COMPLETED
    if options.logs:
        engine.on(each(every=3))(show(model))
        engine.add(
            CSV(options.directory / "rows.csv", when=rows),
            TensorBoard(options.directory / "board", when=rows),
        )
    engine.add(
        ClipGradNorm(1.0),
        LRSchedule(scheduler),
        WeightAverage(model),
        Metrics({"accuracy": MulticlassAccuracy(10, average="micro")}),
        Validate(
            DataLoader(TensorDataset(PIXELS[-64:], CLASSES[-64:]), 32),
            name="val",
            when=validate,
        ),
        EarlyStopping("val/loss", patience=1000, when=validate),
        Checkpoint(
            options.directory,
            when=save,
            keep=latest(2) | best(1, "val/loss"),
            resume=True,
            background=not options.foreground,
            retries=options.retries,
            on_failure=options.on_failure,
        ),
        JSONLines(options.directory / "rows.jsonl", when=rows),
        StopOnSignal(),
    )
    if options.until:

        @engine.on(Events.ITERATION_COMPLETED(after=options.until - 1))
        def pause(state):
            state.interrupt("pause")

    if options.delay:
        engine.on(Events.ITERATION_STARTED)(lambda state: time.sleep(options.delay))
    if options.spoil:
        engine.on(Events.STARTED)(lambda state: spoil(options.spoil, state, optimizer, scheduler))
    if options.tell:
        line = options.tell.open("a", buffering=1)
        engine.on(Events.ITERATION_STARTED)(lambda state: line.write(f"{state.iteration}\n"))

    began = []
    engine.on(Events.STARTED)(began.append)
    source = Stream if options.stream else Augmented
    loader = DataLoader(
        source(options.samples),
        8,
        shuffle=not options.stream,
        num_workers=options.workers,
        persistent_workers=options.persistent,
        multiprocessing_context="fork" if options.workers else None,
    )
    state = engine.run(loader, max_epochs=options.epochs)
    outcome = {
        "iteration": state.iteration,
        "stopped": state.stop_reason,
        "weights": digest(model.state_dict()),
        "optimizer": digest(optimizer.state_dict()),
        "scheduler": digest(scheduler.state_dict()),
        "average": digest(memory_of(state)),
        "rows": (options.directory / "rows.jsonl").read_text(),
        "next": (random.random(), numpy.random.rand(), torch.rand(1).item()) if began else None,
    }
    if options.logs:
        outcome["table"] = (options.directory / "rows.csv").read_text()
        outcome["board"] = board(options.directory / "board")
    Path(options.directory, "result.json").write_text(json.dumps(outcome))


def memory_of(state):
    """What handlers remember of the training; the loggers' rows are compared as files."""
    memory = state.state_dict()["memory"]
    return [memory.get(name) for name in ("WeightAverage", "EarlyStopping(val/loss)")]


if __name__ == "__main__":
    main(sys.argv[1:])
