"""A rank's share of the batches that all ranks make together."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, cast

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    SequentialSampler,
)

from .. import ranks
from ..state import Dealing
from .loaders import LengthBatches, SharedOrder

KNOWN = (DistributedSampler.__iter__, SharedOrder.__iter__)
"""The ways of dealing one order out in turn."""


class Dealt:
    """The batches of one rank: its samples of each batch over all ranks, without repeats.

    Samples are dealt out in turn: of a batch, a rank gets number `rank`, `rank + ranks`, and so on.
    A short batch may have none for a rank. In training the rank then takes its first sample, with
    a share of 0, since ranks step together; an evaluation has one batch less.

    >>> sampler = DistributedSampler(range(5), num_replicas=4, rank=1, shuffle=False)
    >>> batches = Dealt(sampler, 4)
    >>> [(batch, batches.share) for batch in batches], list(Dealt(sampler, 4, each_once=True))
    ([([1], 1.0), ([4], 0.0)], [[1]])
    """

    def __init__(
        self,
        sampler: Any,
        size: int,
        *,
        drop_last: bool = False,
        each_once: bool = False,
        is_batched: bool = True,
    ) -> None:
        """Choose what to deal out.

        Args:
            sampler: A `DistributedSampler`, which deals out in torch's way, or `LengthBatches`.
            size: Samples of a batch, over all ranks.
            drop_last: Leave out a short last batch.
            each_once: For an evaluation, in which ranks do not wait for one another.
            is_batched: False to give one index instead of a list of one.
        """
        self.sampler, self.size, self.drop_last = sampler, size, drop_last
        self.each_once, self.is_batched = each_once, is_batched
        self.batches_before = self.samples_before = 0
        self.share = 1.0
        """The weight of the batch drawn last in the mean over ranks."""
        self.place = 0
        """The place of this batch's first sample over all ranks."""

    @property
    def samples(self) -> int:
        """The samples of a pass, over all ranks, each once."""
        if isinstance(self.sampler, LengthBatches):
            return len(self.sampler.lengths)
        samples: Any = self.sampler.dataset
        return min(len(samples), int(self.sampler.total_size))

    def begin(self, batches: int, samples: int) -> None:
        """Let the next pass begin after so many batches, with so many samples over all ranks."""
        self.batches_before, self.samples_before = batches, samples

    def __iter__(self) -> Iterator[Any]:
        rank, count = self.sampler.rank, self.sampler.num_replicas
        if self.each_once and self.samples < count:
            raise ValueError(
                f"an evaluation of {self.samples} samples on {count} ranks leaves some without "
                "any; give every rank all samples, by a DataLoader without a sampler"
            )
        for place, whole in self._whole():
            own = whole[rank::count]
            if own or not self.each_once:
                self.place, self.share = place, len(own) * count / len(whole)
                own = own or whole[:1]
                yield own if self.is_batched else own[0]

    def __len__(self) -> int:
        return self.length(0, 0)

    def length(self, batches: int, samples: int) -> int:
        """The batches of a pass, of which so many with so many samples have come already."""
        whole, rest = divmod(max(0, self.samples - samples), self.size)
        is_there = rest > (self.sampler.rank if self.each_once else 0)
        return batches + whole + (is_there and not self.drop_last)

    def _whole(self) -> Iterator[tuple[int, list[Any]]]:
        """The batches over all ranks that are still to come, and the places of their first."""
        if isinstance(self.sampler, LengthBatches):
            place = 0
            for number, whole in enumerate(self.sampler.whole()):
                if number >= self.batches_before:
                    yield place, whole
                place += len(whole)
            return
        order = whole_order(self.sampler, self.samples)
        for place in range(self.samples_before, self.samples, self.size):
            whole = order[place : place + self.size]
            if len(whole) == self.size or not self.drop_last:
                yield place, whole


def whole_order(sampler: DistributedSampler[Any], samples: int) -> list[Any]:
    """The order of which a sampler deals out a share."""
    twin = copy.copy(sampler)
    twin.num_replicas, twin.rank = 1, 0
    twin.num_samples = twin.total_size = samples
    return list(twin)


def dealt(data: DataLoader[Any], each_once: bool) -> Dealt | None:
    """The share of a loader's batches, if it is known how ranks share them."""
    batches, kind = data.batch_sampler, type(data.batch_sampler)
    sampler: Any = batches if kind is LengthBatches else ones_of(data)
    if not (kind is LengthBatches or _is_in_turn(sampler)) or sampler.num_replicas == 1:
        return None
    if ranks.data_group() is not None and sampler.num_replicas != ranks.data_world_size():
        raise ValueError(
            f"{type(sampler).__name__} deals samples out to {sampler.num_replicas} ranks, and by "
            f"ranks.data_parallel(...) {ranks.data_world_size()} ranks read different ones; give "
            "it num_replicas=ranks.data_world_size() and rank=ranks.data_rank()"
        )
    size, drop_last = whole_batch(data), bool(getattr(batches, "drop_last", False))
    assert size is not None
    return Dealt(
        sampler, size, drop_last=drop_last, each_once=each_once, is_batched=batches is not None
    )


def without_repeats(sampler: Any) -> Any:
    """A sampler as it is; one of accelerate's, which repeats samples by `even_batches`, does not.

    For evaluations, in which ranks do not wait for one another.
    """
    if is_of_accelerate(sampler):
        sampler = copy.copy(sampler)
        sampler.even_batches = False
    return sampler


def dealing_of(data: DataLoader[Any]) -> Dealing:
    """How ranks share the samples of this loader."""
    batches = cast("Any", data.batch_sampler)
    ones = ones_of(data)
    if type(batches) is LengthBatches:
        names = ("shuffle", "pool", "drop_last", "seed")
        order = f"LengthBatches({_settings(batches, *names)})"
        return Dealing(batches.num_replicas, order, whole_batch(data))
    if is_of_accelerate(batches):
        ones = batches.batch_sampler.sampler
        seed = f", {_settings(ones, 'initial_seed')}" if hasattr(ones, "initial_seed") else ""
        order = f"{type(batches).__name__}({type(ones).__name__}{seed})"
        return Dealing(batches.num_processes, order, whole_batch(data))
    if ones is None:
        return Dealing(ranks.data_world_size(), type(batches).__name__)
    if not _is_in_turn(ones):
        size = whole_batch(data) if ranks.data_world_size() == 1 else None
        return Dealing(ranks.data_world_size(), type(ones).__name__, size)
    if isinstance(ones, SharedOrder):
        order = f"SharedOrder({type(ones.sampler).__name__}, {_settings(ones, 'seed')})"
    elif ones.shuffle:
        order = f"DistributedSampler({_settings(ones, 'shuffle', 'seed')})"
    else:
        order = SequentialSampler.__name__
    return Dealing(ones.num_replicas, order, whole_batch(data))


def ones_of(data: DataLoader[Any]) -> Any:
    """The sampler whose samples a loader makes batches of; None if batches come otherwise."""
    if data.batch_sampler is None:
        return data.sampler
    return data.batch_sampler.sampler if type(data.batch_sampler) is BatchSampler else None


def whole_batch(data: DataLoader[Any]) -> int | None:
    """The samples of a batch over all ranks."""
    if type(data.batch_sampler) is LengthBatches:
        return data.batch_sampler.batch_size
    batches = cast("Any", data.batch_sampler)
    if is_of_accelerate(batches):
        return int(batches.batch_size * (1 if batches.split_batches else batches.num_processes))
    size = 1 if batches is None else getattr(batches, "batch_size", None)
    ones = ones_of(data)
    return size * ones.num_replicas if isinstance(size, int) and _is_in_turn(ones) else size


def is_of_accelerate(sampler: Any) -> bool:
    """True for a batch sampler of accelerate's, which deals out whole batches or parts of them."""
    return type(sampler).__name__ == "BatchSamplerShard" and sampler.batch_size is not None


def _is_in_turn(sampler: Any) -> bool:
    """True for a sampler that deals one order out in torch's way."""
    return isinstance(sampler, DistributedSampler) and type(sampler).__iter__ in KNOWN


def _settings(owner: Any, *names: str) -> str:
    return ", ".join(f"{name}={getattr(owner, name)}" for name in names)
