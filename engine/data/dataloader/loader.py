"""Torch's `DataLoader`, read from any batch on, with random numbers seeded by the batch."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sized
from itertools import islice
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

from torch.utils.data import DataLoader, IterableDataset

from ... import ranks
from ...state import Dealing, Position, own_generators
from ..loaders import LengthBatches, SeededSamples
from ..shares import Dealt, dealing_of, dealt, is_of_accelerate, ones_of, without_repeats
from ..sources import Source, check_length, has_persistent_workers, iterate, length_of
from .in_memory import is_default
from .indices import Indices
from .reading import Samples, collated, unrecorded
from .workers import (
    Preparation,
    Seeded,
    blocked,
    caught_signals,
    end_by_own_signal,
    is_forked,
    named,
)


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
        self.copy = IDLE.pop(data) if data in IDLE else _copy_of(data)
        self.dealt: Dealt | None = None
        if self.is_indexed:
            self.dealt = dealt(data, each_once)
            sampler = data.sampler if data.batch_sampler is None else data.batch_sampler
            sampler = without_repeats(sampler) if each_once else sampler
            _indices(self.copy).sampler = sampler if self.dealt is None else self.dealt
            _check_places(data)

    def open(self, position: Position, consumed: int) -> Iterator[Any]:
        """Begin a pass, at its first batch or a later one."""
        caught = self._renew()
        if not self.is_indexed:
            batches = self._begin(caught)
            check_length(sum(1 for _ in islice(batches, consumed)), consumed)
            return named(batches) if self.data.num_workers else batches
        indices = _indices(self.copy)
        key = (position.seed, ranks.data_rank(), position.number)
        samples = None if position.dealing is None else position.dealing.samples_in(consumed)
        indices.begin(consumed, key if self.data.num_workers else None, samples)
        if isinstance(self.data.dataset, SeededSamples):
            indices.tell_places(position.number)
        batches = self._begin(caught)
        indices.skip()  # workers, if any, have their first indices by now
        check_length(indices.number, consumed)
        return named(batches) if self.data.num_workers else unrecorded(batches)

    def length(self, dealing: Dealing | None = None) -> int | None:
        """The number of batches of a pass; of one that has had batches of another size, too."""
        before = (0, 0) if dealing is None else (dealing.batches_before, dealing.samples_before)
        if self.dealt is not None:
            return self.dealt.length(*before)
        ones, size = ones_of(self.data), self.data.batch_size
        if not any(before) or not isinstance(ones, Sized) or size is None:
            own = self.is_indexed and self.data.batch_sampler is not None
            return length_of(_indices(self.copy).sampler) if own else super().length()
        rest = max(0, len(ones) - before[1])
        return before[0] + (rest // size if self.data.drop_last else -(-rest // size))

    def shares(self) -> dict[int, float] | None:
        """By the number of the batch: the weights in a mean over ranks that are not 1."""
        return None if self.dealt is None else _indices(self.copy).shares

    def dealing(self) -> Dealing:
        """How ranks share the samples."""
        return dealing_of(self.data) if self.is_indexed else super().dealing()

    @property
    def fits_any_ranks(self) -> bool:
        """True if samples have indices: a stream cannot tell which ones other ranks have had."""
        return self.is_indexed

    @property
    def goes_on_anywhere(self) -> bool:
        """True if a pass can go on with batches of another size behind any sample."""
        batches = self.data.batch_sampler
        return self.is_indexed and not (type(batches) is LengthBatches or is_of_accelerate(batches))

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

    def _begin(self, caught: frozenset[int]) -> Iterator[Any]:
        """Torch's iterator, which starts workers, or goes on with persistent ones."""
        before = vars(self.copy)["_iterator"]
        with blocked(caught):
            batches = iterate(self.copy)
        if self.copy.worker_init_fn.caught and batches is not before:  # type: ignore[union-attr]
            end_by_own_signal(batches)
        return batches

    def _renew(self) -> frozenset[int]:
        """Copy changes of the user's loader; return the signals to block while workers start.

        Workers leave these signals to the main process. Only forked workers inherit our handlers
        and need the block; in others, and in a fork server, the block would stay.
        """
        kept = {name: vars(self.copy)[name] for name in OWN}
        vars(self.copy).update(vars(self.data), **kept)
        if isinstance(samples := self.copy.dataset, Samples):
            is_batched = self.data.batch_sampler is not None
            samples.begin(is_batched and is_default(self.data.collate_fn))
            if samples.is_collated:
                self.copy.collate_fn = collated
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
        kind = Seeded if data.num_workers else Samples
        parts["dataset"] = kind(data.dataset)
        name = "sampler" if data.batch_sampler is None else "batch_sampler"
        parts[name] = Indices(getattr(data, name), name == "batch_sampler")
    vars(twin).update(parts)
    return twin


def _check_places(data: DataLoader[Any]) -> None:
    """Refuse `SeededSamples` where the places of samples are not known, or inside a wrapper.

    Raises:
        ValueError: They are.
    """
    inner = getattr(data.dataset, "dataset", None)
    if isinstance(data.dataset, SeededSamples):
        if dealing_of(data).batch is None and ranks.data_world_size() > 1:
            raise ValueError(
                f"SeededSamples draws by the place of each sample, and {_sampler_of(data)} does "
                "not tell how the ranks share its samples; use loader(...), DistributedSampler, "
                "SharedOrder or LengthBatches"
            )
        return
    while inner is not None:
        if isinstance(inner, SeededSamples):
            raise ValueError(
                f"SeededSamples is inside a {type(data.dataset).__name__}, and would not be told "
                f"the places of samples: write SeededSamples({type(data.dataset).__name__}(...))"
            )
        inner = getattr(inner, "dataset", None)


def _sampler_of(data: DataLoader[Any]) -> str:
    ones = ones_of(data)
    return type(data.batch_sampler if ones is None else ones).__name__


def _indices(twin: DataLoader[Any]) -> Indices:
    found: Any = twin.sampler if twin.batch_sampler is None else twin.batch_sampler
    return found  # type: ignore[no-any-return]
