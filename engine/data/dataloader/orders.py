"""The orders of samples with indices: the indices that a loader is asked for, from any batch on."""

from __future__ import annotations

import copy
from array import array
from collections import deque
from collections.abc import Iterator, Sized
from itertools import chain, islice, pairwise, repeat
from typing import Any, cast
from zlib import crc32

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, SequentialSampler

from ... import ranks
from ...state import capture_generators, seed_of
from ..loaders import LengthBatches, Mixture, Placed, SharedOrder
from ..order import Order
from ..sources import length_of, rest_of
from ..trail import FIRST, of_first, of_indices

MOST_AHEAD = 4096
"""The most batches by which workers may be ahead of the training, for a checksum to be known."""
KNOWN: tuple[Any, ...] = (DistributedSampler.__iter__, SharedOrder.__iter__)
"""The `__iter__` methods that deal one order out to the ranks in turn."""


def order_of(data: DataLoader[Any], each_once: bool = False) -> Sampled:
    """The order in which a loader's samples come.

    Args:
        data: The loader, of a data set with indices.
        each_once: For an evaluation, where ranks do not wait for one another: a rank that gets no
            sample of a short batch has one batch less.
    """
    batches: Any = data.batch_sampler
    if type(batches) is LengthBatches:
        return OfLikeLength(batches, batches, each_once)
    if type(batches).__name__ == "BatchSamplerShard" and batches.batch_size is not None:
        return OfAccelerate(batches, each_once)
    ones: Any = data.sampler
    if batches is not None:
        if type(batches) is not BatchSampler:
            return Sampled(batches)
        ones = batches.sampler
    if isinstance(ones, DistributedSampler) and type(ones).__iter__ in KNOWN:
        return InTurn(ones, batches, each_once)
    return OneByOne(ones, batches)


class Sampled(Order):
    """The indices of each batch of this rank, in the order of a sampler, from any batch on.

    This class takes any sampler: it is unknown how the sampler shares samples between ranks.
    """

    place: int = 0
    """The place of the next sample in the pass, over all ranks."""
    first: int = 0
    """The checksum of the first index of the pass."""
    draws: bool = False
    """True if the indices that were skipped drew random numbers as they were asked for."""
    keeps: bool = False
    """True if they did so now and then, so that some were drawn for indices behind them."""
    most: int | None = None
    """The most batches of a pass; None for all of them."""
    step = 1
    """The distance from a sample's place to the place of this rank's next sample."""

    def __init__(self, sampler: Any) -> None:
        super().__init__(fits_any_ranks=True)
        self.sampler: Any = sampler
        self.name: str = type(sampler).__name__
        self.ones: Any = sampler
        """What draws the order: the sampler inside a batch sampler, if that has one."""
        self.begin(0, 0)

    def begin(
        self,
        batches: int,
        samples: int | None,
        *,
        seed: tuple[int, ...] | None = None,
        number: int | None = None,
    ) -> None:
        """Begin the next pass, and skip its first batches.

        Args:
            batches: How many batches are skipped.
            samples: How many samples are skipped, over all ranks, if known.
            seed: The key from which each batch's seed is made; without it, batches have no seeds.
            number: The number of the pass, if each index needs its place; else None.
        """
        self.batches_before: int = batches
        self.samples_before: int | None = samples
        self.seed: tuple[int, ...] | None = seed
        self.pass_number: int | None = number
        self.number: int = 0
        """The number of the latest batch."""
        self._rest: Iterator[Any] = iter(())
        if self.shares is not None:
            self.shares.clear()

    def length(self, batches: int = 0, samples: int = 0) -> int | None:
        """The batches of a pass, of which `batches` with `samples` samples have come already."""
        return length_of(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        """Begin to draw; a loader may call this twice per pass, and uses the second iterator."""
        self._totals: deque[int] = deque([0], MOST_AHEAD)
        self._rest, self.number = self._draw(), 0
        self.place = 0
        return islice(self._asked(), self.most)

    def mark(self, consumed: int) -> str | None:
        """Checksums of the first index, of the first batches, and of those that workers asked for.

        The last one is followed by how far the workers are ahead. None if they are not known.
        """
        ahead = self.number - consumed
        if not 0 <= ahead < len(self._totals):
            return None
        own = f"indices of rank {ranks.data_rank()} of {ranks.data_world_size()}"
        by_workers = f"{self._totals[-1]:08x} {ahead}" if ahead else ""
        return f"{own}:{self.first:08x}:{self._totals[-1 - ahead]:08x}:{by_workers}"

    def skip(self) -> None:
        """Draw the indices of the skipped batches, unless they are drawn already."""
        if self.number < self.batches_before:
            self._skip(self.batches_before)

    def _draw(self) -> Iterator[Any]:
        return rest_of(iter(self.sampler))  # which may be the sampler, and begin anew by `iter`

    def _skip(self, batches: int) -> None:
        for indices in self._noted(islice(self._rest, batches)):
            self.number += 1
            self.place += _count(indices)

    def _noted(self, drawn: Iterator[Any]) -> Iterator[Any]:
        """The indices that are skipped, with a checksum behind the last one."""
        total, states = 0, []
        for number, indices in enumerate(drawn):
            total = of_indices(indices, total)
            if not number:
                self.first = of_first(indices)
            if number < FIRST:
                states.append(capture_generators())
            yield indices
        self._totals.append(total)
        self.draws = bool(states) and states[0] != capture_generators()
        drew = sum(one != other for one, other in pairwise(states))
        self.keeps = self.draws and 2 * drew < len(states) - 1

    def _asked(self) -> Iterator[Any]:
        """The batches, with the seed and the places that the data set needs."""
        self.skip()
        for indices in self._rest:
            total: int = self._totals[-1]
            own: Any = indices if type(indices) is list else [None]
            try:  # usually a list of integers, without a call of ours
                total = crc32(array("q", own), total)
            except (TypeError, ValueError, OverflowError):
                total = of_indices(indices, total)
            self._totals.append(total)
            self.number += 1
            if self.number == 1:
                self.first = of_first(indices)
            asked = indices if self.pass_number is None else self._placed(indices, self.pass_number)
            yield asked if self.seed is None else (seed_of(*self.seed, self.number), asked)

    def _placed(self, indices: Any, number: int) -> Any:
        """These indices, each with its place in the pass."""
        begin = self.place
        self.place += _count(indices) * self.step
        if not isinstance(indices, list):
            return Placed(indices, number, begin)
        return [Placed(index, number, begin + at * self.step) for at, index in enumerate(indices)]


class OfAccelerate(Sampled):
    """Whole batches, or parts of them, as accelerate's batch sampler deals them out."""

    def __init__(self, batches: Any, each_once: bool) -> None:
        if each_once and batches.even_batches:  # it repeats samples to even out the ranks
            batches = copy.copy(batches)
            batches.even_batches = False
        super().__init__(batches)
        ones = batches.batch_sampler.sampler
        seed = f", {_settings(ones, 'initial_seed')}" if hasattr(ones, "initial_seed") else ""
        self.name: str = f"{type(batches).__name__}({type(ones).__name__}{seed})"
        self.ones = ones
        self.ranks: Any = batches.num_processes
        self.batch: int | None = int(
            batches.batch_size * (1 if batches.split_batches else self.ranks)
        )


class OneByOne(Sampled):
    """The samples of a sampler that shares nothing between ranks, cut into batches of one size."""

    splits_anywhere = True
    place: int

    def __init__(self, ones: Any, batches: BatchSampler | None) -> None:
        super().__init__(ones if batches is None else batches)
        self.ones: Any = ones
        self.name: str = _named(ones)
        self.is_batched: bool = batches is not None

    @property
    def batch(self) -> int | None:  # type: ignore[override]
        """The samples of a batch, if there are no other ranks."""
        return self.size if self.ranks == 1 else None

    @property
    def size(self) -> int:
        """The samples of a batch on this rank: a run may change them between two passes."""
        return self.sampler.batch_size if self.is_batched else 1

    @property
    def drop_last(self) -> bool:
        """Whether a short last batch is left out."""
        return self.is_batched and self.sampler.drop_last

    @property
    def samples(self) -> int | None:  # type: ignore[override]
        """The samples of a pass: `set_epoch` may change them."""
        return length_of(self.ones)

    def length(self, batches: int = 0, samples: int = 0) -> int | None:
        """The batches of a pass, of which `batches` with `samples` samples have come already."""
        if not batches or self.samples is None:
            return super().length()
        rest = max(0, self.samples - samples)
        return batches + (rest // self.size if self.drop_last else -(-rest // self.size))

    def _skip(self, batches: int) -> None:
        ones = iter(self.ones) if self.is_batched else self._rest  # at its beginning
        samples = self.samples_before
        wanted = batches * self.size if samples is None else samples
        found = 0
        # One by one where each may be a list of its own, and to see which of the first ones draw.
        sizes = chain(repeat(1, FIRST), repeat(4096 if self.is_batched else 1))
        left = islice(ones, wanted)
        drawn = iter(lambda: [*islice(left, next(sizes))], [])
        for some in self._noted(drawn if self.is_batched else chain.from_iterable(drawn)):
            part = some if self.is_batched else [some]
            found += len(part)
            self.place += sum(map(_count, part))
        if found > wanted - self.size:  # the last skipped batch may be short
            self.number = batches
        if self.is_batched:
            self._rest = iter(BatchSampler(ones, self.size, self.drop_last))


class InTurn(Sampled):
    """One order whose batches are dealt out to the ranks in turn, without repeats.

    From each batch, a rank gets samples number `rank`, `rank + ranks`, and so on. A short batch may
    have no sample for a rank. In training, the rank then takes the batch's first sample with a
    share of 0, since ranks step together; in an evaluation, the rank has one batch less.

    >>> sampler = DistributedSampler(range(5), num_replicas=4, rank=1, shuffle=False)
    >>> order, alone = (InTurn(sampler, BatchSampler(sampler, 1, False), each) for each in (0, 1))
    >>> list(order), order.shares, list(alone)
    ([[1], [4]], {2: 0.0}, [[1]])
    """

    splits_anywhere = True
    place: int
    total: int | None = None
    """The checksum of the pass's order over all ranks."""

    def __init__(self, sampler: Any, batches: Any, each_once: bool) -> None:
        super().__init__(sampler)
        self.rank: Any = sampler.rank
        self.ranks: Any = sampler.num_replicas
        self.step: Any = self.ranks
        self.each_once: bool = each_once
        self.shares: dict[int, float] | None = {} if self.ranks > 1 else None
        self.is_batched: bool = batches is not None
        self.drop_last: bool = bool(getattr(batches, "drop_last", False))
        if ranks.data_group() is not None and self.ranks not in (1, ranks.data_world_size()):
            raise ValueError(
                f"{type(sampler).__name__} deals samples out to {self.ranks} ranks, and by "
                f"ranks.data_parallel(...) {ranks.data_world_size()} ranks read different ones; "
                "give it num_replicas=ranks.data_world_size() and rank=ranks.data_rank()"
            )
        self._describe(batches)

    def _describe(self, batches: Any) -> None:
        ones = self.sampler
        if isinstance(ones, SharedOrder):
            self.name = f"SharedOrder({_named(ones.sampler)}, {_settings(ones, 'seed')})"
        elif ones.shuffle:
            self.name = f"DistributedSampler({_settings(ones, 'shuffle', 'seed')})"
        else:
            self.name: str = SequentialSampler.__name__
        self.size: Any = self.ranks * (1 if batches is None else batches.batch_size)
        self.batch: int | None = self.size
        self.samples: int | None = min(len(cast("Sized", ones.dataset)), int(ones.total_size))

    def length(self, batches: int = 0, samples: int = 0) -> int:
        """The batches of a pass, of which `batches` with `samples` samples have come already."""
        assert self.samples is not None
        whole, rest = divmod(max(0, self.samples - samples), self.size)
        is_there = rest > (self.rank if self.each_once else 0)
        return batches + int(whole) + (is_there and not self.drop_last)

    def mark(self, consumed: int) -> str | None:
        """A checksum of the pass's whole order, the same on any number of ranks."""
        return None if self.total is None else f"order::{self.total:08x}"

    def _draw(self) -> Iterator[Any]:
        return self._deal(self._whole())

    def _skip(self, batches: int) -> None:
        self.number = batches
        # Draw now: a sampler without its own generator draws from the process's generators.
        self._rest = self._deal(iter([*self._whole()]))

    def _whole(self) -> Iterator[tuple[int, list[Any]]]:
        """The remaining batches over all ranks: pairs of the first sample's place and the batch."""
        assert self.samples is not None
        whole = copy.copy(self.sampler)
        whole.num_replicas, whole.rank = 1, 0
        whole.num_samples = whole.total_size = len(cast("Sized", whole.dataset))
        order = list(whole)
        self.total = of_indices(order)
        del order[self.samples :]  # with drop_last, other numbers of ranks leave out others
        for place in range(self.samples_before or 0, self.samples, self.size):
            batch = order[place : place + self.size]
            if len(batch) == self.size or not self.drop_last:
                yield place, batch

    def _deal(self, batches: Iterator[tuple[int, list[Any]]]) -> Iterator[Any]:
        assert self.samples is not None
        if self.each_once and self.samples < self.ranks > 1:
            raise ValueError(
                f"an evaluation of {self.samples} samples on {self.ranks} ranks leaves some "
                "without any; give every rank all samples, by a DataLoader without a sampler"
            )
        for place, whole in batches:
            own = whole[self.rank :: self.ranks]
            if not own and self.each_once:
                continue
            share = len(own) * self.ranks / len(whole)
            if self.shares is not None and share != 1:
                self.shares[self.number + 1] = share
            self.place = place + (self.rank if own else 0)
            own = own or whole[:1]
            yield own if self.is_batched else own[0]


class OfLikeLength(InTurn):
    """The batches of `LengthBatches`, dealt out to the ranks in turn."""

    splits_anywhere = False

    def _describe(self, batches: LengthBatches) -> None:
        names, by_tokens = ["shuffle", "pool", "drop_last", "seed"], batches.max_tokens is not None
        if by_tokens:
            names = ["max_tokens", "batch_size", *names]
        self.name: str = f"LengthBatches({_settings(batches, *names)})"
        self.size: int = 0 if by_tokens else cast("int", batches.batch_size)
        self.batch: int | None = self.size
        self.samples: int | None = len(batches.lengths)

    def length(self, batches: int = 0, samples: int = 0) -> int:
        """The batches of a pass, of which so many with so many samples have come already."""
        if self.batch:
            return super().length(batches, samples)
        if not self.each_once:
            return len(self.sampler)
        return sum(len(batch) > self.rank for batch in self.sampler.whole())

    def _whole(self) -> Iterator[tuple[int, list[Any]]]:
        place = 0
        self.total: int | None = of_indices(self.sampler.lengths)
        for number, batch in enumerate(self.sampler.whole()):
            if number >= self.batches_before:
                yield place, batch
            place += len(batch)


def _count(indices: Any) -> int:
    return len(indices) if isinstance(indices, list) else 1


def _named(sampler: Any) -> str:
    return repr(sampler) if isinstance(sampler, Mixture) else type(sampler).__name__


def _settings(owner: Any, *names: str) -> str:
    return ", ".join(f"{name}={getattr(owner, name)}" for name in names)
