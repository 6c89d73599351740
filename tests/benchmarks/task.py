"""What every subject trains: the same model, the same data, the same settings."""

from collections.abc import Iterator, Sized
from typing import Any

import torch
from laps import Laps
from torch.utils.data import DataLoader, Dataset, RandomSampler, Sampler, TensorDataset

BATCH = 32
FEATURES, HIDDEN, CLASSES = 32, 64, 10
RATE = 0.01
MAX_NORM = 1.0
LOG_EVERY = 50
SAVE_EVERY = 1000
KEEP = 2
NEVER = 10**9  # an idle handler is called every so many iterations

loss_fn = torch.nn.functional.cross_entropy


def make_model() -> torch.nn.Module:
    """The small MLP: a step of it is short, so what an engine adds is seen."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES)
    )


def make_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=RATE)


def make_schedule(
    optimizer: torch.optim.Optimizer, steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)


class TimedRange:
    """Batches that cost nothing."""

    def __init__(self, length: int) -> None:
        self.laps = Laps()
        self.range = range(length)

    def __len__(self) -> int:
        return len(self.range)

    def __iter__(self) -> Iterator[int]:
        self.laps.begin()
        return iter(self.range)


class TimedOrder(Sampler[int]):
    """A new order of all samples for each epoch, which begins with it."""

    def __init__(self, data: Sized) -> None:
        self.laps = Laps()
        self.order = RandomSampler(data)

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[int]:
        self.laps.begin()
        return iter(self.order)


class TimedLoader(DataLoader[Any]):
    """A plain, shuffling DataLoader over tensors."""

    def __init__(self, steps: int) -> None:
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(steps * BATCH, FEATURES, generator=generator)
        targets = torch.randint(0, CLASSES, (steps * BATCH,), generator=generator)
        data = self.dataset_of(inputs, targets)
        order = TimedOrder(data)
        super().__init__(data, batch_size=BATCH, sampler=order)
        self.laps = order.laps

    def dataset_of(self, inputs: torch.Tensor, targets: torch.Tensor) -> "TensorDataset | Pairs":
        """Data in memory, as torch knows it."""
        return TensorDataset(inputs, targets)


class Pairs(Dataset[Any]):
    """A custom data set: only its `__getitem__` knows what a sample is."""

    def __init__(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inputs[index], self.targets[index]


class TimedPairs(TimedLoader):
    """The same batches of a custom data set, which is asked for each sample."""

    def dataset_of(self, inputs: torch.Tensor, targets: torch.Tensor) -> Pairs:
        return Pairs(inputs, targets)
