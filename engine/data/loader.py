"""Torch's `DataLoader`, read from any batch on, with random numbers seeded by the batch."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Iterator, Sized
from itertools import count, islice
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from .. import ranks
from ..state import Position, own_generators, seed_of
from .lengths import check_length, length_of
from .shares import unpadded
from .sources import Source, has_persistent_workers, iterate
from .workers import Preparation, Seeded, blocked, caught_signals, is_forked


def is_plain(data: object) -> TypeGuard[DataLoader[Any]]:
    """True for a `DataLoader` that does not override how torch iterates it."""
    return isinstance(data, DataLoader) and all(
        getattr(type(data), name) is getattr(DataLoader, name)
        for name in ("__iter__", "_get_iterator", "_index_sampler")
    )


class Loader(Source[Any]):
    """A `DataLoader`, read through a copy that has our own sampler and data set wrapper.

    To skip consumed batches, their indices are drawn and dropped; no sample is loaded. The random
    numbers of workers depend on the run's seed, the pass and the batch's number in it, and not on
    the number of workers. An iterable data set is read again. The user's loader is not changed.
    """

    data: DataLoader[Any]

    def __init__(self, data: DataLoader[Any], each_once: bool = False) -> None:
        """Make the copy, or reuse one whose persistent workers are alive from an earlier run."""
        super().__init__(data)
        self.is_indexed = not isinstance(data.dataset, IterableDataset)
        self.is_cut = each_once and self.is_indexed
        self.copy = IDLE.pop(data) if data in IDLE else _copy_of(data)
        if self.is_indexed:
            sampler = data.sampler if data.batch_sampler is None else data.batch_sampler
            _indices(self.copy).sampler = unpadded(sampler) if self.is_cut else sampler

    def open(self, position: Position, consumed: int) -> Iterator[Any]:
        """Begin a pass, at its first batch or a later one."""
        caught = self._renew()
        if not self.is_indexed:
            with blocked(caught):
                batches = iterate(self.copy)
            check_length(sum(1 for _ in islice(batches, consumed)), consumed)
            return batches
        indices = _indices(self.copy)
        key = (position.seed, ranks.rank(), position.number)
        indices.begin(consumed, key if self.data.num_workers else None)
        with blocked(caught):
            batches = iterate(self.copy)
        indices.skip()  # workers, if any, have their first indices by now
        check_length(indices.number, consumed)
        return batches

    def length(self) -> int | None:
        """The number of batches of a pass, without the samples that are left out."""
        return length_of(_indices(self.copy).sampler) if self.is_cut else super().length()

    def sizes(self) -> dict[str, int]:
        """The numbers of batches and samples, the batch size, and the workers of a stream."""
        sizes = super().sizes()
        if self.is_indexed:
            sizes.pop("workers", None)
            if isinstance(self.data.dataset, Sized):
                sizes["samples"] = len(self.data.dataset)
        if isinstance(self.data.batch_size, int):
            sizes["batch_size"] = self.data.batch_size
        return sizes

    def doubts(self) -> list[str]:
        """Random generators that only workers hold, and batches in an undefined order."""
        found = [] if self.is_indexed else super().doubts()
        if self.data.num_workers and not getattr(self.data, "in_order", True):
            found.append("in_order=False hands batches out as they come; use in_order=True")
        if self.data.num_workers and own_generators(self.data.dataset):
            found.append(
                "the data set has a random generator of its own, and each worker has a copy of it; "
                "draw from the generators of torch, NumPy or Python, which workers get anew for "
                "each batch"
            )
        return found

    def close(self) -> None:
        """Keep persistent workers for the next run over this loader."""
        if has_persistent_workers(self.data):
            IDLE[self.data] = self.copy

    def _renew(self) -> frozenset[int]:
        """Copy changes of the user's loader; return the signals to block while workers start.

        Workers leave these signals to the main process. Only forked workers inherit our handlers
        and need the block; in others, and in a fork server, the block would stay.
        """
        kept = {name: vars(self.copy)[name] for name in OWN}
        vars(self.copy).update(vars(self.data), **kept)
        caught = caught_signals() if self.data.num_workers else frozenset[int]()
        self.copy.worker_init_fn = Preparation(self.data.worker_init_fn, caught)
        return caught if is_forked(self.data) else frozenset()


IDLE: WeakKeyDictionary[DataLoader[Any], DataLoader[Any]] = WeakKeyDictionary()
"""The copies of loaders whose persistent workers wait for the next run.

This table is process-wide because the workers outlive each run and each engine; an entry ends with
its loader.
"""

OWN = ("_iterator", "dataset", "sampler", "batch_sampler")
"""The attributes in which a copy differs from the user's loader."""


def _copy_of(data: DataLoader[Any]) -> DataLoader[Any]:
    twin = copy.copy(data)
    parts: dict[str, Any] = {"_iterator": None}  # set in vars(), since a loader refuses to set them
    if not isinstance(data.dataset, IterableDataset):
        if data.num_workers:
            parts["dataset"] = Seeded(data.dataset)
        name = "sampler" if data.batch_sampler is None else "batch_sampler"
        parts[name] = Indices(getattr(data, name))
    vars(twin).update(parts)
    return twin


def _indices(twin: DataLoader[Any]) -> Indices:
    found: Any = twin.sampler if twin.batch_sampler is None else twin.batch_sampler
    return found  # type: ignore[no-any-return]


class Indices:
    """The indices of each batch of a pass, from any batch on, with a seed for each batch."""

    def __init__(self, sampler: Iterable[Any]) -> None:
        self.sampler = sampler
        self.begin(0, None)

    def begin(self, first: int, key: tuple[int, ...] | None) -> None:
        """Begin the next pass after the `first` batches; without a `key` give no seeds."""
        self.first, self.key = first, key
        self.number = 0
        self._indices: Iterator[Any] = iter(())

    def skip(self) -> None:
        """Draw the indices of the skipped batches, unless that has happened."""
        missing = max(0, self.first - self.number)
        if missing and type(self.sampler) is BatchSampler:  # in one go, without making the batches
            size, ones = self.sampler.batch_size, iter(self.sampler.sampler)
            deque(islice(ones, (missing - 1) * size), maxlen=0)
            # One index is enough for the last skipped batch, which may be short.
            self.number += missing if _skip(ones, 1) else 0
            deque(islice(ones, size - 1), maxlen=0)
            self._indices = iter(BatchSampler(ones, size, self.sampler.drop_last))
        else:
            self.number += _skip(self._indices, missing)

    def __iter__(self) -> Iterator[Any]:
        """Begin to draw; a loader may call this twice for a pass, and uses the second iterator."""
        self._indices, self.number = iter(self.sampler), 0
        return self._rest()

    def _rest(self) -> Iterator[Any]:
        self.skip()
        for indices in self._indices:
            self.number += 1
            yield indices if self.key is None else (seed_of(*self.key, self.number), indices)


def _skip(items: Iterator[Any], most: int) -> int:
    """Skip at most `most` items of an iterator; return how many were skipped."""
    found = count()
    deque(zip(islice(items, most), found, strict=False), maxlen=0)
    return next(found)
