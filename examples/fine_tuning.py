"""Fine-tuning: a pretrained body is frozen at first, then thawed and trained at a lower rate.

A small CNN learns the digits 0 to 4. Then its body has to tell the digits 5 to 9 apart, with only
ten images of each. A new head is trained alone for ten epochs, then body and head together.

    python examples/fine_tuning.py
"""

import argparse
from collections.abc import Sequence

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

from camshaft import Engine, Events, Output, Stage, State, supervised
from camshaft.handlers import (
    Freeze,
    LRSchedule,
    Metrics,
    Validate,
    describe_groups,
    parameter_groups,
)
from camshaft.handlers.schedules import cosine, warmup


class Classifier(nn.Module):
    """A body of two convolutions, and a head that tells five classes apart."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, 64),
            nn.ReLU(),
        )
        self.head = nn.Linear(64, 5)

    def forward(self, pixels: Tensor) -> Tensor:
        """From (batch, 1, 8, 8) to (batch, 5)."""
        logits: Tensor = self.head(self.body(pixels))
        return logits


def load_data(first: int, of_each: int | None = None) -> tuple[TensorDataset, TensorDataset]:
    """Images of the digits `first` to `first + 4`: a set for training and one for the test.

    The training set has `of_each` images of each digit, or three quarters of them.
    """
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    classes = torch.tensor(labels) - first
    train, test = list[Tensor](), list[Tensor]()
    for number in range(5):
        members = (classes == number).nonzero().flatten()
        count = of_each or len(members) * 3 // 4
        train.append(members[:count])
        test.append(members[count:])
    for_training, for_test = torch.cat(train), torch.cat(test)
    return (
        TensorDataset(pixels[for_training], classes[for_training]),
        TensorDataset(pixels[for_test], classes[for_test]),
    )


def pretrain(model: Classifier, max_epochs: int, max_batches: int | None) -> float:
    """Learn the digits 0 to 4; return the accuracy on their test set."""
    train_set, test_set = load_data(first=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    engine = supervised(model, optimizer, cross_entropy)
    engine.add(Metrics({"accuracy": MulticlassAccuracy(5, average="micro")}, training=False))
    train_loader = DataLoader(train_set, 32, shuffle=True)
    engine.run(train_loader, max_epochs=max_epochs, max_batches=max_batches)
    return float(engine.evaluate(DataLoader(test_set, 128)).metrics["accuracy"])


def fine_tuner(model: Classifier, thaw_at: int) -> Engine[object, Output]:
    """The engine that trains the new head, and from the epoch `thaw_at` on the body too."""
    groups = parameter_groups(model, {"body.*": {"lr": 1e-3}})
    print(describe_groups(groups))
    optimizer = torch.optim.AdamW(groups, lr=3e-3)
    return supervised(model, optimizer, cross_entropy).add(
        Freeze("body.*", until=Events.EPOCH_STARTED(at=thaw_at)),
        LRSchedule(warmup(0.1).then(cosine(final=0.1))),  # warm up for a tenth of the steps
        Metrics({"accuracy": MulticlassAccuracy(5, average="micro")}),
    )


def main(arguments: Sequence[str] | None = None) -> float:
    """Pretrain, fine-tune, and say how well it went."""
    parser = argparse.ArgumentParser(description="Fine-tuning with a frozen body.")
    parser.add_argument("--pretrain-epochs", type=int, default=5)
    parser.add_argument("--max-epochs", type=int, default=30)
    parser.add_argument("--max-batches", type=int, help="of each epoch, to try the script out")
    parser.add_argument("--thaw-at", type=int, default=11, help="the first epoch with the body")
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    model = Classifier()
    accuracy = pretrain(model, options.pretrain_epochs, options.max_batches)
    print(f"accuracy on 0 to 4: {accuracy:.1%}")
    model.head = nn.Linear(64, 5)

    train_set, test_set = load_data(first=5, of_each=10)
    every_5_epochs = Events.STARTED | Events.EPOCH_COMPLETED(every=5)
    engine = fine_tuner(model, options.thaw_at)
    engine.add(Validate(DataLoader(test_set, 128), name="test", when=every_5_epochs))

    @engine.on(every_5_epochs, stage=Stage.REPORT)
    def report(state: State) -> None:
        accuracy = state.metrics["test/accuracy"]
        print(f"accuracy on 5 to 9 after {state.epoch} epochs: {accuracy:.1%}")

    train_loader = DataLoader(train_set, 10, shuffle=True)
    state = engine.run(train_loader, max_epochs=options.max_epochs, max_batches=options.max_batches)
    return float(state.metrics["test/accuracy"])


if __name__ == "__main__":
    main()
