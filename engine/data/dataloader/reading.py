"""How samples are read: a batch by one index where the data is in memory, else as torch does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import autograd
from torch.utils.data import default_collate

from .in_memory import InMemory

_is_profiled: Any = getattr(autograd, "_profiler_enabled", None)


class Samples:
    """A data set as torch's loader asks it; batches of data in memory come whole."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.begin(is_collated=False)

    def begin(self, is_collated: bool) -> None:
        """Begin a pass, in which batches may be given whole if `collated` takes them."""
        self.is_collated = is_collated
        self._memory: InMemory | None = None

    def __getitems__(self, indices: Any) -> list[Any] | Whole:
        if self._memory is None:  # in a worker, after the user's function has prepared the data set
            self._memory = InMemory(self.dataset, default_collate if self.is_collated else None)
        if (whole := self._memory.batch(indices)) is not None:
            return Whole(whole)
        if getattr(self.dataset, "__getitems__", None):
            return self.dataset.__getitems__(indices)  # type: ignore[no-any-return]
        return [self.dataset[index] for index in indices]

    def __getitem__(self, index: Any) -> Any:
        """One sample, of a loader that makes no batches."""
        return self.dataset[index]


@dataclass(slots=True)
class Whole:
    """A batch that is collated already."""

    batch: Any


def collated(samples: Any) -> Any:
    """A batch of these samples, by torch's `default_collate` unless it is there already."""
    return samples.batch if type(samples) is Whole else default_collate(samples)


class Unrecorded:
    """The batches of torch's iterator in this process, recorded only while a profiler runs."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches
        self.read = batches._next_data

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self.batches) if _is_profiled() else self.read()


def unrecorded(batches: Iterator[Any]) -> Iterator[Any]:
    """The batches without torch's record of each; as they are where torch has other insides."""
    has_names = _is_profiled is not None and hasattr(batches, "_next_data")
    return Unrecorded(batches) if has_names else batches
