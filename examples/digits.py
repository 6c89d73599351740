"""Train a small CNN on scikit-learn's digits; stop it, run it again, and it carries on.

    python examples/digits.py
    torchrun --nproc-per-node=2 examples/digits.py

To look at it, during the run or afterwards:

    camshaft watch runs/digits
    tensorboard --logdir runs/digits
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, Subset, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

from camshaft import Engine, Events, Output, State, loader, ranks, supervised
from camshaft.handlers import (
    Checkpoint,
    ClipGradNorm,
    EarlyStopping,
    ImageFiles,
    Journal,
    JSONLines,
    LRSchedule,
    Metrics,
    ProgressBar,
    TensorBoard,
    Validate,
    best,
    latest,
)
from camshaft.handlers.loggers import Image


def load_data(batch_size: int) -> tuple[DataLoader[Any], DataLoader[Any], DataLoader[Any]]:
    """Loaders for training, validation and test: 1149, 288 and 360 images of 8 x 8 pixels."""
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    data = TensorDataset(pixels, torch.tensor(labels))
    rest, test = map(list, train_test_split(range(len(data)), test_size=360, random_state=0))
    train, val = map(list, train_test_split(rest, test_size=288, random_state=0))

    return (
        loader(Subset(data, train), batch_size, training=True),
        loader(Subset(data, val), 144, training=False),
        loader(Subset(data, test), 180, training=False),
    )


def build_model() -> nn.Module:
    """Two convolutions and two linear layers, 142,946 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 120),
        nn.ReLU(),
        nn.Linear(120, 10),
    )


def show_predictions(state: State[Any, Output]) -> None:
    """Log digits of the last batch, ten of each prediction in a line: a mistake stands out."""
    assert state.batch is not None
    assert state.output is not None
    images, predicted = state.batch[0], state.output.prediction.argmax(1)
    lines = images.new_zeros(10, 10, 1, 8, 8)
    for digit in range(10):
        found = images[predicted == digit][:10]
        lines[digit, : len(found)] = found
    state.metrics["predictions"] = Image(lines.flatten(0, 1))


def main(arguments: Sequence[str] | None = None) -> tuple[Engine[Any, Output], State[Any, Output]]:
    """Train, or carry on, or find that all is done; then test."""
    parser = argparse.ArgumentParser(description="Train a small CNN on scikit-learn's digits.")
    parser.add_argument("--directory", type=Path, default=Path("runs/digits"))
    parser.add_argument("--max-epochs", type=int, default=20)
    parser.add_argument("--max-batches", type=int, help="of each epoch, to try the script out")
    parser.add_argument("--batch-size", type=int, default=32, help="over all ranks")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    torch.manual_seed(options.seed)
    train_loader, val_loader, test_loader = load_data(options.batch_size)
    model = idist.auto_model(build_model())  # on the GPU if there is one, in DDP under torchrun
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    scheduler = CosineAnnealingLR(optimizer, options.max_epochs * len(train_loader))

    hparams = {name: getattr(options, name) for name in ("lr", "batch_size", "max_epochs")}
    engine = supervised(model, optimizer, nn.functional.cross_entropy)
    engine.add(
        ClipGradNorm(1.0),
        LRSchedule(scheduler),
        Metrics({"accuracy": MulticlassAccuracy(10, average="micro")}),
        Validate(val_loader, name="val"),
        EarlyStopping("val/loss", patience=5),
        Checkpoint(
            options.directory,
            keep=latest(2) | best(1, "val/accuracy", mode="max"),
            resume=True,
        ),
        TensorBoard(options.directory, hparams=hparams),
        ImageFiles(options.directory / "images"),
        Journal(options.directory, config=options),
        JSONLines(options.directory / "rows.jsonl"),
        ProgressBar("loss", "val/accuracy"),
    )
    # A metric of the validation, so the run logs it as "val/predictions".
    engine.evaluation.on(Events.COMPLETED)(show_predictions)

    state = engine.run(train_loader, max_epochs=options.max_epochs, max_batches=options.max_batches)
    test = engine.evaluate(test_loader)
    if ranks.rank() == 0:
        print(f"stopped after {state.epoch} epochs: {state.stop_reason}")
        print(f"test accuracy: {float(test.metrics['accuracy']):.2%}")
    return engine, test


if __name__ == "__main__":
    with ranks.process_group():  # of torchrun, Slurm or MPI; alone, nothing happens
        main()
