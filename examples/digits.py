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

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, Subset, TensorDataset
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix

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
from camshaft.handlers.loggers import ConfusionMatrix, Image


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


# Digits of 3 x 5 pixels, line by line.
FONT = [
    *("111101101101111", "010110010010111", "111001111100111", "111001111001111"),
    *("101101111001001", "111100111001111", "111100111101111", "111001001001001"),
    *("111101111101111", "111101111001111"),
]
GREEN, RED, GREY = (0.0, 0.55, 0.3), (0.85, 0.1, 0.1), (0.45, 0.45, 0.45)


def card(image: torch.Tensor, prediction: int, label: int) -> torch.Tensor:
    """A digit, with its prediction below it at the left, and its label at the right."""
    drawn = torch.ones(3, 34, 26)
    drawn[:, 1:25, 1:25] = 1 - image.cpu().repeat_interleave(3, 1).repeat_interleave(3, 2)
    colour = GREEN if prediction == label else RED
    for digit, left, ink in ((prediction, 6, colour), (label, 17, GREY)):
        is_ink = torch.tensor([pixel == "1" for pixel in FONT[digit]]).reshape(1, 5, 3)
        drawn[:, 27:32, left : left + 3] = torch.where(
            is_ink, torch.tensor(ink)[:, None, None], 1.0
        )
    return drawn


def show_predictions(state: State[Any, Output]) -> None:
    """Log 36 digits of the last batch, mistakes first, and the confusion matrix of the epoch."""
    assert state.batch is not None
    assert state.output is not None
    (images, labels), predicted = state.batch, state.output.prediction.argmax(1)
    first = (predicted == labels).int().argsort(stable=True)[:36].tolist()
    cards = [card(images[at], int(predicted[at]), int(labels[at])) for at in first]
    caption = "prediction, green if it is right, and label"
    state.metrics["predictions"] = Image(torch.stack(cards), caption)
    state.metrics["confusion"] = ConfusionMatrix(state.metrics["confusion"])


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
    model = ranks.prepare(build_model())  # on the GPU if there is one, in DDP under torchrun
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    scheduler = CosineAnnealingLR(optimizer, options.max_epochs * len(train_loader))

    hparams = {name: getattr(options, name) for name in ("lr", "batch_size", "max_epochs")}
    engine = supervised(model, optimizer, nn.functional.cross_entropy)
    engine.add(
        ClipGradNorm(1.0),
        LRSchedule(scheduler),
        Metrics({"accuracy": MulticlassAccuracy(10, average="micro")}),
        Metrics({"confusion": MulticlassConfusionMatrix(10)}, training=False),
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
    # Metrics of the validation, so the run logs "val/predictions" and "val/confusion".
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
