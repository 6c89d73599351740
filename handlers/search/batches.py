"""Batches of any size, from a loader, a data set or a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

Make = Callable[[int], Any]


@dataclass(frozen=True)
class Batches:
    """Makes a batch of any size."""

    make: Make
    size: int | None = None
    """The size of the batches that a loader gives."""
    samples: int | None = None
    """The number of samples; None if it is not known."""


def batches_of(data: Make | Dataset[Any] | DataLoader[Any]) -> Batches:
    """The first samples of a loader's data set or of a data set, collated; or a function's batches.

    >>> batches_of(lambda size: list(range(size))).make(3)
    [0, 1, 2]

    Raises:
        TypeError: `data` is none of these.
    """
    if isinstance(data, DataLoader):
        if data.batch_sampler is None:
            raise TypeError(
                "find_batch_size: this loader, with batch_size=None, does not collate samples; "
                "pass a function that makes a batch of a given size"
            )
        return Batches(
            FirstSamples(data.dataset, data.collate_fn), data.batch_size, _count(data.dataset)
        )
    if isinstance(data, Dataset) or (hasattr(data, "__getitem__") and not isinstance(data, list)):
        return Batches(FirstSamples(data, default_collate), samples=_count(data))
    if callable(data):
        return Batches(data)
    raise TypeError(
        f"find_batch_size: got a {type(data).__name__} for the data; it needs a DataLoader, a data "
        "set, or a function that makes a batch of a given size"
    )


class FirstSamples:
    """Collates the first samples of a data set, each of which is read once."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate
        self.read: list[Any] = []
        self.unread = _samples(dataset)

    def __call__(self, size: int) -> Any:
        """A batch of this size, or smaller if the data ends before."""
        while len(self.read) < size:
            self.read.append(next(self.unread))
        return self.collate(self.read[:size])


def _samples(dataset: Any) -> Iterator[Any]:
    if isinstance(dataset, IterableDataset):
        yield from dataset
    else:
        yield from (dataset[number] for number in range(len(dataset)))


def _count(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except TypeError:
        return None
