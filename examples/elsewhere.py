"""Evaluate on another machine, and let its results steer the run: one script, started twice.

    python examples/elsewhere.py train       # here
    python examples/elsewhere.py evaluate    # there, where the same directory is mounted

With `--store s3://bucket/run` for both, the other machine needs to see that store only.

The training saves a checkpoint each epoch and goes on. The other process evaluates the averaged
weights of each. One epoch after the save the result counts: for the rate of the plateau schedule,
for early stopping, and for the best checkpoint. Kill either one at any time and start it again: the
rates, the end of the run and its weights are the same to the last bit.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, Subset, TensorDataset, random_split

from camshaft import ranks, supervised
from camshaft.handlers import (
    EMA,
    Checkpoint,
    EarlyStopping,
    JSONLines,
    LRSchedule,
    Metrics,
    Mirror,
    StopOnSignal,
    ValidateElsewhere,
    ValidationEvents,
    best,
    checkpoints,
    follow,
    latest,
)

Sets = list[Subset[tuple[Tensor, ...]]]


def digits() -> Sets:
    """Pictures of digits to train on, and others to evaluate on."""
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    return random_split(data, [1440, len(data) - 1440], torch.Generator().manual_seed(0))


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    return (output.argmax(1) == target).float().mean()


def train(options: argparse.Namespace) -> None:
    """Train, and take results in as they are due."""
    torch.manual_seed(0)
    model = ranks.prepare(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    loader = DataLoader(digits()[0], 64, shuffle=True)
    plateau = ReduceLROnPlateau(optimizer, factor=0.5, patience=1, threshold=0.1)

    engine = supervised(model, optimizer, nn.functional.cross_entropy)
    engine.add(
        EMA(0.9),
        ValidateElsewhere("val", lag=options.lag, late=options.late, patience=options.patience),
        LRSchedule(plateau, metric="val/loss", when=ValidationEvents.VALIDATED),
        EarlyStopping("val/loss", patience=3, when=ValidationEvents.VALIDATED),
        Checkpoint(options.directory, keep=latest() | best(1, "val/loss"), resume=True),
        JSONLines(options.directory / "rows.jsonl"),
        StopOnSignal(),
    )
    if options.store:
        engine.add(Mirror(options.store, interval=options.interval))
    limits = {"max_epochs": options.max_epochs, "max_batches": options.max_batches}
    state = engine.run(loader, **limits)
    if ranks.rank() > 0:
        return
    print(f"stopped in epoch {state.epoch}: {state.stop_reason}")
    if "val/loss" in state.metrics and (found := checkpoints(options.directory).best("val/loss")):
        print(f"{found.path.name} is the best: {found.manifest.metrics['val/loss']:.4f}")


def evaluate(options: argparse.Namespace) -> None:
    """Evaluate checkpoints as they come, until the run has completed."""
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    loader = DataLoader(digits()[1], 128)
    engine = supervised(model, loss_fn=nn.functional.cross_entropy)
    engine.add(EMA(0.9), Metrics({"accuracy": accuracy}), Checkpoint(options.directory))
    for saved in follow(options.store or options.directory, name="val", idle=options.idle):
        measured = engine.evaluate(loader, checkpoint=saved.path, weights="ema").metrics
        saved.write(measured)
        print(f"{saved.path.name}: {measured['loss']:.4f}, {measured['accuracy']:.1%}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, or evaluate what the training saves."""
    parser = argparse.ArgumentParser(description="Evaluate on another machine than that of a run.")
    parser.add_argument("task", choices=("train", "evaluate"))
    parser.add_argument("--directory", type=Path, default=Path("runs/elsewhere"))
    parser.add_argument("--max-epochs", type=int, default=20)
    parser.add_argument("--max-batches", type=int, help="of each epoch, to try the script out")
    parser.add_argument("--lag", type=int, default=23, help="iterations: an epoch has 23")
    parser.add_argument("--late", choices=("wait", "skip"), default="wait")
    parser.add_argument("--patience", type=float, default=3600, help="seconds for one result")
    parser.add_argument("--store", help="an address for copies, such as s3://bucket/run")
    parser.add_argument("--interval", type=float, default=5, help="seconds between two copies")
    parser.add_argument("--idle", type=float, default=float("inf"), help="seconds without a save")
    options = parser.parse_args(arguments)
    (train if options.task == "train" else evaluate)(options)


if __name__ == "__main__":
    main()
