"""Torch's `DataLoader`, read from any batch on, with random numbers seeded by the batch."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sized
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

from torch.utils.data import DataLoader, IterableDataset

from ... import ranks
from ...signals import PACKAGE, package_of
from ...state import Dealing, Position
from ..loaders import LengthBatches, Packed, SeededSamples, inner_of
from ..order import Order
from ..sources import Source, check_length, has_persistent_workers, iterate
from ..trail import END
from .orders import Sampled, order_of
from .samples import Samples, collated, is_default, unrecorded
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
    """A `DataLoader`, read through a copy that has a data set wrapper and a sampler of our own.

    The user's loader is not changed. This class is for iterable data sets: a resumed run reads the
    consumed batches again.
    """

    data: DataLoader[Any]

    def __init__(self, data: DataLoader[Any], order: Order | None = None) -> None:
        """Make the copy, or reuse one whose persistent workers are alive from an earlier run."""
        super().__init__(data, order)
        self.copy: DataLoader[Any] = IDLE.pop(data) if data in IDLE else _copy_of(data)

    def open(self, position: Position, consumed: int) -> Iterator[Any]:
        """Begin a pass, at its first batch or a later one."""
        batches = self._begin()
        return self.read_on(named(batches) if self.data.num_workers else batches, consumed)

    def sizes(self) -> dict[str, int]:
        """The numbers of batches and of workers, which share a stream, and the batch size."""
        sizes = super().sizes()
        if isinstance(self.data.batch_size, int):
            sizes["batch_size"] = self.data.batch_size
        batches, samples = self.data.batch_sampler, self.data.dataset
        if not (isinstance(batches, LengthBatches) and isinstance(samples, Sized)):
            return sizes
        if len(batches.lengths) != len(samples):
            raise ValueError(
                f"LengthBatches got {len(batches.lengths)} lengths, and the data set has "
                f"{len(samples)} samples: give it the length of each sample, in their order"
            )
        return sizes

    def doubts(self) -> list[str]:
        """Doubts about persistent workers, and about batches in an undefined order."""
        found = super().doubts()
        if self.data.num_workers and not getattr(self.data, "in_order", True):
            found.append("in_order=False hands batches out as they come; use in_order=True")
        return found

    def close(self) -> None:
        """Keep persistent workers for the next run over this loader."""
        if has_persistent_workers(self.data):
            IDLE[self.data] = self.copy

    def _begin(self) -> Iterator[Any]:
        """Torch's iterator, which starts workers, or goes on with persistent ones."""
        caught = self._renew()
        before = vars(self.copy)["_iterator"]
        with blocked(caught):
            batches = iterate(self.copy)
        if self.copy.worker_init_fn.caught and batches is not before:  # type: ignore[union-attr]
            end_by_own_signal(batches)
        return batches

    def _renew(self) -> frozenset[int]:
        """Copy changes of the user's loader; return the signals to block while workers start.

        Workers leave these signals to the main process. Only forked workers inherit our handlers
        and need the block; in spawned workers and in a fork server, the block would stay.
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


class IndexedLoader(Loader):
    """A loader of a data set with indices.

    To skip consumed batches, their indices are drawn and dropped; no sample is loaded. The random
    numbers of workers depend on the run's seed, the pass and the batch's number in it, and not on
    the number of workers.
    """

    order: Sampled
    seeds_workers = skips = True

    def __init__(self, data: DataLoader[Any], *, each_once: bool = False) -> None:
        super().__init__(data, order_of(data, each_once))
        drawn_by = package_of(type(self.order.ones).__iter__)
        self.is_known: bool = drawn_by in ("torch", "accelerate", PACKAGE)
        if isinstance(rows := inner_of(data.dataset), Packed):
            self.order.name += f" of {rows!r}"
        twin: Any = self.copy
        (twin.sampler if data.batch_sampler is None else twin.batch_sampler).order = self.order
        self._check_places()

    def open(self, position: Position, consumed: int) -> Iterator[Any]:
        """Begin a pass, at its first batch or a later one."""
        key = (position.seed, ranks.data_rank(), position.number)
        is_placed = isinstance(self.data.dataset, SeededSamples)
        self.order.begin(
            consumed,
            None if position.dealing is None else position.dealing.samples_in(consumed),
            seed=key if self.data.num_workers else None,
            number=position.number if is_placed else None,
        )
        batches = self._begin()
        self.order.skip()  # workers, if any, have their first indices by now
        check_length(self.order.number, consumed)
        aheads = [f"{mark}".split(":")[3:] for mark in (position.mark, self.order.mark(consumed))]
        was, now = ([each.partition(" ")[2] for each in ahead] for ahead in aheads)
        self.is_ahead_anew: bool = bool(consumed and was) and was != now
        return named(batches) if self.data.num_workers else unrecorded(batches)

    def first_batch(self, position: Position) -> Any:
        """Read the first batch of a pass; workers, if any, are asked for no other one."""
        self.order.most = 1
        try:
            return next(iter([*self.open(position, 0)]), END)
        finally:
            self.order.most = None

    def mark(self, consumed: int) -> str | None:
        """A checksum of the indices that were drawn."""
        self.draws: bool = self.order.draws
        self.keeps: bool = self.order.keeps
        return self.order.mark(consumed)

    def length(self, dealing: Dealing | None = None) -> int | None:
        """The number of batches of a pass, also if its first batches had another size."""
        if dealing is None:
            return self.order.length()
        return self.order.length(dealing.batches_before, dealing.samples_before)

    def sizes(self) -> dict[str, int]:
        """The numbers of batches and samples, and the batch size."""
        sizes = super().sizes()
        if isinstance(self.data.dataset, Sized):
            sizes["samples"] = len(self.data.dataset)
        return sizes

    def _check_places(self) -> None:
        """Refuse `SeededSamples` if the places of samples are unknown, or inside a wrapper."""
        outer = self.data.dataset
        if isinstance(outer, SeededSamples):
            if self.order.batch is None and ranks.data_world_size() > 1:
                raise ValueError(
                    f"SeededSamples draws by the place of each sample, and {self.order.name} does "
                    "not tell how the ranks share its samples; use loader(...), "
                    "DistributedSampler, SharedOrder or LengthBatches"
                )
            return
        inner = getattr(outer, "dataset", None)
        while inner is not None:
            if isinstance(inner, SeededSamples):
                raise ValueError(
                    f"SeededSamples is inside a {type(outer).__name__}, and would not be told the "
                    f"places of samples: write SeededSamples({type(outer).__name__}(...))"
                )
            inner = getattr(inner, "dataset", None)


class Current:
    """The sampler of a loader's copy: it gives the order of the run that reads the loader now."""

    order: Sampled

    def __iter__(self) -> Iterator[Any]:
        return iter(self.order)


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
        parts["sampler" if data.batch_sampler is None else "batch_sampler"] = Current()
    vars(twin).update(parts)
    return twin
