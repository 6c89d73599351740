"""Batches that this process reads itself: the shortest way from indices to a batch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import autograd
from torch.autograd.profiler import record_function
from torch.utils.data import _utils, dataloader

from .in_memory import InMemory

_is_profiled: Any = getattr(autograd, "_profiler_enabled", None)
_pin: Any = getattr(getattr(_utils, "pin_memory", None), "pin_memory", None)
_own: Any = getattr(dataloader, "_SingleProcessDataLoaderIter", None)

PARTS = (
    *("_dataset", "_dataset_fetcher", "_sampler_iter", "_collate_fn", "_auto_collation"),
    *("_pin_memory", "_pin_memory_device", "_profile_name"),
)
"""The attributes of torch's iterator that are read; one without them reads by itself."""


class Reading:
    """Reads batches as torch's iterator does, without its record of each for a profiler.

    While a profiler runs, each batch is recorded under torch's name for it.
    """

    def __init__(self, batches: Any) -> None:
        """Take the parts of an iterator that has begun a pass."""
        self.fetch = batches._dataset_fetcher.fetch
        self.memory = InMemory(batches._dataset, batches._collate_fn)
        self.memory.is_on &= batches._auto_collation
        self.device = batches._pin_memory_device if batches._pin_memory else None
        self.name = batches._profile_name
        self.is_recorded = False

    def __call__(self, indices: Any) -> Any:
        """The batch of these indices."""
        if _is_profiled() and not self.is_recorded:
            return self._recorded(indices)
        batch = self.memory.batch(indices)
        if batch is None:
            batch = self.fetch(indices)
        return batch if self.device is None else _pin(batch, self.device)

    def _recorded(self, indices: Any) -> Any:
        self.is_recorded = True
        try:
            with record_function(self.name):
                return self(indices)
        finally:
            self.is_recorded = False


def read_directly(batches: Iterator[Any]) -> Iterator[Any]:
    """The batches of torch's iterator, read without it where this process reads them."""
    own: Any = batches
    if _is_profiled is None or type(own) is not _own or not all(map(partial(hasattr, own), PARTS)):
        return batches
    if _pin is None and own._pin_memory:
        return batches
    return map(Reading(own), own._sampler_iter)
