"""Train a small CNN on scikit-learn's digits; stop it, run it again, and it carries on.

python examples/digits.py
torchrun --nproc-per-node=2 examples/digits.py
tensorboard --logdir runs/digits
camshaft watch runs/digits
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

from camshaft import Engine, Events, Output, State, supervised
from camshaft.handlers import (
    Checkpoint,
    ClipGradNorm,
    EarlyStopping,
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
    train, test = map(list, train_test_split(range(len(labels)), test_size=360, random_state=0))
    train, val = map(list, train_test_split(train, test_size=288, random_state=0))
    pixels = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    data = TensorDataset(pixels, torch.tensor(labels))

    rank, ranks = idist.get_rank(), idist.get_world_size()
    train_set = Subset(data, train)
    sampler: DistributedSampler[Any] | None = None
    if ranks > 1:
        sampler = DistributedSampler(train_set, ranks, rank)
    return (
        DataLoader(train_set, batch_size // ranks, shuffle=sampler is None, sampler=sampler),
        # Each rank evaluates every ranks-th image: each image once, whatever their number.
        DataLoader(Subset(data, val[rank::ranks]), 144),
        DataLoader(Subset(data, test[rank::ranks]), 180),
    )


def build_model() -> nn.Module:
    """Two convolutions and two linear layers, 142,946 parameters."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.25), nn.Linear(64 * 4 * 4, 120), nn.ReLU()),
        nn.Linear(120, 10),
    )


def sorted_by_prediction(state: State[Any, Output]) -> None:
    """Show digits of the batch, ten of each prediction a line: a mistake stands out."""
    assert state.output is not None
    predicted = state.output.prediction.argmax(1)
    pixels = state.batch[0].new_zeros(10, 10, 1, 8, 8)  # type: ignore[index]
    for digit in range(10):
        found = state.batch[0][predicted == digit][:10]  # type: ignore[index]
        pixels[digit, : len(found)] = found
    state.metrics["predictions"] = Image(pixels.flatten(0, 1))


def main(arguments: Sequence[str] | None = None) -> tuple[Engine[Any, Output], State[Any, Output]]:
    """Train, or carry on, or find that all is done; then test."""
    parser = argparse.ArgumentParser(description="Train a small CNN on scikit-learn's digits.")
    parser.add_argument("--directory", type=Path, default=Path("runs/digits"))
    parser.add_argument("--max-epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32, help="over all ranks")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    torch.manual_seed(options.seed)
    train_loader, val_loader, test_loader = load_data(options.batch_size)
    model = idist.auto_model(build_model())  # to the device there is; DDP where there are ranks
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = CosineAnnealingLR(optimizer, options.max_epochs * len(train_loader))

    hparams = {"lr": 2e-3, "batch_size": options.batch_size, "max_epochs": options.max_epochs}
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
        Journal(options.directory, config=options),
        JSONLines(options.directory / "rows.jsonl"),
        ProgressBar("loss", "val/accuracy"),
    )
    # The last batch of each validation; as a metric of it, `val/predictions` is the run's.
    engine.evaluation.on(Events.COMPLETED)(sorted_by_prediction)
    state = engine.run(train_loader, max_epochs=options.max_epochs)
    test = engine.evaluate(test_loader)
    if idist.get_rank() == 0:
        print(f"stopped after {state.epoch} epochs: {state.stop_reason}")
        print(f"test accuracy: {float(test.metrics['accuracy']):.2%}")
    return engine, test


if __name__ == "__main__":
    if "RANK" in os.environ:  # under torchrun
        idist.initialize("nccl" if torch.cuda.is_available() else "gloo")
        main()
        idist.finalize()
    else:
        main()
