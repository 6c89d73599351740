"""Torch's `DataLoader`, read from any batch on, with random numbers that belong to the batch."""

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
from .shares import unpadded
from .sources import Replayed, check_length, has_persistent_workers, iterate, length_of
from .workers import Preparation, Seeded, blocked, caught_signals, is_forked


def is_plain(data: object) -> TypeGuard[DataLoader[Any]]:
    """True for a loader that is iterated in the way of torch's own, and not in one of its own."""
    return isinstance(data, DataLoader) and all(
        getattr(type(data), name) is getattr(DataLoader, name)
        for name in ("__iter__", "_get_iterator", "_index_sampler")
    )


class Loader(Replayed[Any]):
    """A `DataLoader`, which is left as it is: what is iterated is a copy with parts of our own.

    Of a data set with indices, those of the consumed batches are drawn and thrown away, and no
    sample is loaded. What workers draw at random depends on the run's seed, the pass and the
    batch's place in it, whatever the number of workers. An iterable data set is read again.
    """

    data: DataLoader[Any]

    def __init__(self, data: DataLoader[Any], each_once: bool = False) -> None:
        """Make the copy, or take one from an earlier run whose workers are still there.

        Args:
            data: The loader.
            each_once: True to leave out what a sampler repeats to even out the ranks.
        """
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
        indices.skip()  # workers have been given their first indices by now, or there are none
        check_length(indices.number, consumed)
        return batches

    def length(self) -> int | None:
        """The batches of a pass: those of the loader, unless some samples are left out."""
        return length_of(_indices(self.copy).sampler) if self.is_cut else super().length()

    def sizes(self) -> dict[str, int]:
        """The batches, if their number is known; samples and batch size, or a stream's workers."""
        sizes = super().sizes()
        if self.is_indexed:
            sizes.pop("workers", None)
            if isinstance(self.data.dataset, Sized):
                sizes["samples"] = len(self.data.dataset)
        if isinstance(self.data.batch_size, int):
            sizes["batch_size"] = self.data.batch_size
        return sizes

    def doubts(self) -> list[str]:
        """Randomness that lives in the workers alone, and an order that nobody decides."""
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
        """Take over what was changed on the loader since; tell what to hold back for new workers.

        These leave the signals to us. Forked ones are born with our handlers for them; to others
        the block would stick, and to the server that makes them.
        """
        kept = {name: vars(self.copy)[name] for name in OWN}
        vars(self.copy).update(vars(self.data), **kept)
        caught = caught_signals() if self.data.num_workers else frozenset[int]()
        self.copy.worker_init_fn = Preparation(self.data.worker_init_fn, caught)
        return caught if is_forked(self.data) else frozenset()


IDLE: WeakKeyDictionary[DataLoader[Any], DataLoader[Any]] = WeakKeyDictionary()
"""The copies of loaders with persistent workers that no run is reading now."""

OWN = ("_iterator", "dataset", "sampler", "batch_sampler")
"""What a copy has for itself."""


def _copy_of(data: DataLoader[Any]) -> DataLoader[Any]:
    twin = copy.copy(data)
    parts: dict[str, Any] = {"_iterator": None}  # a loader lets nobody set these, so not by name
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
    """The indices of each batch of a pass, from any batch on, with the seed of each."""

    def __init__(self, sampler: Iterable[Any]) -> None:
        """Take the indices from `sampler`: of a batch each, or one by one."""
        self.sampler = sampler
        self.begin(0, None)

    def begin(self, first: int, key: tuple[int, ...] | None) -> None:
        """Begin the next pass behind the `first` batches; without a `key` nothing is seeded."""
        self.first, self.key = first, key
        self.number = 0
        self._row: Iterator[Any] = iter(())

    def skip(self) -> None:
        """Draw what is skipped, if that has not happened so far."""
        missing = max(0, self.first - self.number)
        if missing and type(self.sampler) is BatchSampler:  # in one go, without making the batches
            size, ones = self.sampler.batch_size, iter(self.sampler.sampler)
            deque(islice(ones, (missing - 1) * size), maxlen=0)
            # At least one index makes the last batch of those; a short one has no more.
            self.number += missing if _skip(ones, 1) else 0
            deque(islice(ones, size - 1), maxlen=0)
            self._row = iter(BatchSampler(ones, size, self.sampler.drop_last))
        else:
            self.number += _skip(self._row, missing)

    def __iter__(self) -> Iterator[Any]:
        """Begin to draw; a loader may do so twice for a pass, and reads the second one."""
        self._row, self.number = iter(self.sampler), 0
        return self._rest()

    def _rest(self) -> Iterator[Any]:
        self.skip()
        for indices in self._row:
            self.number += 1
            yield indices if self.key is None else (seed_of(*self.key, self.number), indices)


def _skip(row: Iterator[Any], most: int) -> int:
    """Take that many, as fast as can be; return how many there were."""
    found = count()
    deque(zip(islice(row, most), found, strict=False), maxlen=0)
    return next(found)
