"""Fine-tuning: a pretrained body that is frozen first, thawed later, and trained at a lower rate.

A small CNN learns the digits 0 to 4; then its body has to tell 5 to 9 apart, of which there are
only ten images each. The new head is trained alone for some epochs, then all of it together.

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
            *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
            *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(64 * 4 * 4, 64), nn.ReLU()),
        )
        self.head = nn.Linear(64, 5)

    def forward(self, pixels: Tensor) -> Tensor:
        """From (batch, 1, 8, 8) to (batch, 5)."""
        logits: Tensor = self.head(self.body(pixels))
        return logits


def digits(first: int, each: int | None = None) -> tuple[TensorDataset, TensorDataset]:
    """Five of the digits from `first` on: `each` of them or three quarters, and the others."""
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    classes = torch.tensor(labels) - first
    train, test = list[Tensor](), list[Tensor]()
    for number in range(5):
        members = (classes == number).nonzero().flatten()
        count = each or len(members) * 3 // 4
        train.append(members[:count])
        test.append(members[count:])
    chosen = (torch.cat(train), torch.cat(test))
    learn, check = (TensorDataset(pixels[indices], classes[indices]) for indices in chosen)
    return learn, check


def pretrain(model: Classifier, epochs: int) -> float:
    """Learn the digits 0 to 4; the accuracy on others of them."""
    learn, check = digits(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    engine = supervised(model, optimizer, cross_entropy)
    engine.add(Metrics({"accuracy": MulticlassAccuracy(5, average="micro")}, training=False))
    engine.run(DataLoader(learn, 32, shuffle=True), max_epochs=epochs)
    return float(engine.evaluate(DataLoader(check, 128)).metrics["accuracy"])


def fine_tuner(model: Classifier, thaw_at: int) -> Engine[object, Output]:
    """The engine that trains a new head, and from an epoch on the body too."""
    groups = parameter_groups(model, {"body.*": {"lr": 1e-3}})
    print(describe_groups(groups))
    optimizer = torch.optim.AdamW(groups, lr=3e-3)
    return supervised(model, optimizer, cross_entropy).add(
        Freeze("body.*", until=Events.EPOCH_STARTED(at=thaw_at)),
        LRSchedule(warmup(10).then(cosine(final=0.1))),
        Metrics({"accuracy": MulticlassAccuracy(5, average="micro")}),
    )


def main(arguments: Sequence[str] | None = None) -> float:
    """Pretrain, fine-tune, and say how well it went."""
    parser = argparse.ArgumentParser(description="Fine-tuning with a frozen body.")
    parser.add_argument("--pretrain-epochs", type=int, default=5)
    parser.add_argument("--max-epochs", type=int, default=30)
    parser.add_argument("--thaw-at", type=int, default=11, help="the first epoch with the body")
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    model = Classifier()
    print(f"accuracy on 0 to 4: {pretrain(model, options.pretrain_epochs):.1%}")
    model.head = nn.Linear(64, 5)

    learn, check = digits(5, each=10)
    engine = fine_tuner(model, options.thaw_at)
    engine.add(
        Validate(
            DataLoader(check, 128),
            name="test",
            when=Events.STARTED | Events.EPOCH_COMPLETED(every=5),
        )
    )

    @engine.on(Events.STARTED | Events.EPOCH_COMPLETED(every=5), stage=Stage.REPORT)
    def report(state: State) -> None:
        print(
            f"accuracy on 5 to 9 after {state.epoch} epochs: {state.metrics['test/accuracy']:.1%}"
        )

    state = engine.run(DataLoader(learn, 10, shuffle=True), max_epochs=options.max_epochs)
    return float(state.metrics["test/accuracy"])


if __name__ == "__main__":
    main()
