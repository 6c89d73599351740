"""Samplers that deal one order out to any number of ranks."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler, Sampler

from ... import ranks
from ...state import whole_seed


class SharedOrder(DistributedSampler[Any]):
    """Deals the order of any sampler out to the ranks, as `DistributedSampler` does its own.

    The order is drawn anew each epoch from the seed and the epoch's number, so it is the same on
    any number of ranks. A sampler without a `generator` attribute has to give the same order on
    every rank.

    >>> from torch.utils.data import WeightedRandomSampler
    >>> sampler = WeightedRandomSampler([1.0, 1.0, 8.0], 6)
    >>> whole = list(SharedOrder(sampler, num_replicas=1, rank=0))
    >>> [list(SharedOrder(sampler, num_replicas=2, rank=rank)) for rank in (0, 1)] == [
    ...     whole[0::2],
    ...     whole[1::2],
    ... ]
    True
    """

    def __init__(
        self,
        sampler: Sampler[Any],
        *,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        """Deal the order out to the ranks of the run.

        Args:
            sampler: Gives the whole order, as torch's `WeightedRandomSampler` and
                `SubsetRandomSampler` do; it has a length.
            seed: The seed of its generator; the number of the epoch is added.
            num_replicas: How many ranks share the samples; by default, those of the run.
            rank: The number of this rank among them.

        Raises:
            ValueError: The sampler has no generator, which `seed` could seed.
        """
        if seed and not hasattr(sampler, "generator"):
            raise ValueError(
                f"seed={seed} would do nothing: a {type(sampler).__name__} has no generator that "
                f"SharedOrder could seed. Write {type(sampler).__name__}(..., seed={seed}), or "
                "seed it in another way, and leave out seed="
            )
        super().__init__(
            sampler,  # type: ignore[arg-type]  # only its length is asked for
            num_replicas=ranks.data_world_size() if num_replicas is None else num_replicas,
            rank=ranks.data_rank() if rank is None else rank,
            shuffle=False,
            seed=whole_seed(seed),
        )
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        sampler: Any = self.sampler
        if hasattr(sampler, "generator"):
            sampler.generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = list(sampler)
        return iter([order[place] for place in super().__iter__()])  # a list, for `skip`

    def set_epoch(self, epoch: int) -> None:
        """Draw another order for this epoch, counted from 0; the engine calls it."""
        super().set_epoch(epoch)
        sampler: Any = self.sampler
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)


class LengthBatches:
    """A batch sampler: samples of similar length in one batch, so that little of it is padding.

    Each epoch is shuffled anew, by its number. Its samples are cut into pools of `pool` batches;
    each pool is sorted by length and cut into batches, which come in random order. Every sample
    comes once an epoch. Ranks share each batch, so they have the same number of batches. If a
    short batch has no sample for a rank, the rank repeats the batch's first sample, and an engine
    gives it the weight 0.

    With `max_tokens`, a batch has as many samples as fit into so many tokens, padding included. The
    batches are made once, so that all epochs have the same number; each epoch shuffles their order.

    >>> batches = LengthBatches([5, 1, 4, 2, 3, 6], batch_size=2, shuffle=False)
    >>> list(batches)
    [[1, 3], [4, 2], [0, 5]]
    >>> list(LengthBatches([5, 1, 4, 2, 3, 6], max_tokens=8, shuffle=False))
    [[1, 3], [4, 2], [0], [5]]
    """

    def __init__(
        self,
        lengths: Iterable[int],
        batch_size: int | None = None,
        *,
        max_tokens: int | None = None,
        shuffle: bool = True,
        pool: int = 50,
        drop_last: bool = False,
        seed: int = 0,
    ) -> None:
        """Store the lengths.

        Args:
            lengths: The length of each sample, in the order of the data set.
            batch_size: Samples of a batch, on all ranks together; with `max_tokens`, at most.
            max_tokens: Tokens of a batch, padding included, on all ranks together, at most.
            shuffle: False to sort all samples once, for evaluation.
            pool: How many batches are sorted together: more mean less padding, fewer mean a more
                random order.
            drop_last: Leave out samples that do not fill a batch, other samples in each epoch.
            seed: The seed of the order; the number of the epoch is added. The same on all ranks.

        Raises:
            TypeError: With `max_tokens`, a length is no whole number.
            ValueError: The batch or the pool has no size, a rank would have no sample, or a sample
                has more than `max_tokens`.
        """
        if max_tokens is None:
            self.lengths: Tensor = torch.as_tensor(list(lengths))
        else:
            self.lengths = token_lengths("LengthBatches", lengths, max_tokens)
        self.batch_size: int | None = batch_size
        self.max_tokens: int | None = max_tokens
        self.pool: int = pool
        self.shuffle: bool = shuffle
        self.drop_last: bool = drop_last
        self.seed: int = whole_seed(seed)
        self.rank: int = ranks.data_rank()
        self.num_replicas: int = ranks.data_world_size()
        self.epoch: int = 0
        self._once: list[Tensor] = []
        """The batches of all epochs, in their order by length, if there are `max_tokens`."""
        self._check()
        if max_tokens is not None:
            self._once = self._batches(torch.Generator().manual_seed(self.seed))
            if (most := max(map(len, self._once))) < self.num_replicas:
                raise ValueError(
                    f"LengthBatches(max_tokens={max_tokens}, batch_size={batch_size}) has at most "
                    f"{most} samples a batch, for {self.num_replicas} ranks that share it; raise "
                    "them, since they count over all ranks"
                )

    def _check(self) -> None:
        """Refuse sizes that make no batch."""
        size, count = self.batch_size, self.num_replicas
        if size is None and self.max_tokens is None:
            raise TypeError("LengthBatches() needs batch_size=, max_tokens=, or both")
        if (size is not None and size < count) or self.pool < 1:
            raise ValueError(
                f"LengthBatches(batch_size={size}, pool={self.pool}): needs a sample for each of "
                f"{count} ranks, and a batch in each pool"
            )
        if self.max_tokens is not None and self.drop_last:
            raise ValueError(
                "LengthBatches(max_tokens=..., drop_last=True): batches by tokens have unlike "
                "numbers of samples, and none is whole; leave drop_last out"
            )
        least = size if self.drop_last and size is not None else count
        if len(self.lengths) < least:
            raise ValueError(f"LengthBatches got {len(self.lengths)} lengths: needs {least}")

    def set_epoch(self, epoch: int) -> None:
        """Shuffle for this epoch, counted from 0; the engine calls it."""
        self.epoch = epoch

    def __len__(self) -> int:
        if self.max_tokens is not None:
            return len(self._once)
        whole, rest = divmod(len(self.lengths), self._size())
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.whole():
            yield batch[self.rank :: self.num_replicas] or batch[:1]

    def whole(self) -> Iterator[list[int]]:
        """The batches of the epoch, each over all ranks."""
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        batches = self._once or self._batches(generator)
        if self.shuffle:
            batches = [batches[i] for i in torch.randperm(len(batches), generator=generator)]
        for batch in batches:
            yield batch.tolist()

    def _size(self) -> int:
        """The samples of a batch; with `max_tokens`, about."""
        if self.max_tokens is None:
            return cast("int", self.batch_size)
        about = max(1, self.max_tokens * len(self.lengths) // int(self.lengths.sum()))
        return about if self.batch_size is None else min(about, self.batch_size)

    def _batches(self, generator: torch.Generator) -> list[Tensor]:
        """The batches of an epoch over all ranks, not yet in random order."""
        count, size = len(self.lengths), self._size()
        pool = size * self.pool if self.shuffle else count
        order = torch.randperm(count, generator=generator) if self.shuffle else torch.arange(count)
        if self.drop_last:
            order = order[: len(self) * size]
        pools = (part[self.lengths[part].argsort(stable=True)] for part in order.split(pool))
        if self.max_tokens is None:
            return [batch for part in pools for batch in part.split(size)]
        return [batch for part in pools for batch in part.split(self._sizes(self.lengths[part]))]

    def _sizes(self, lengths: Tensor) -> list[int]:
        """How many of these samples, from the shortest on, come into each batch."""
        sizes = [0]
        for length in lengths.tolist():
            is_full = (sizes[-1] + 1) * length > cast("int", self.max_tokens)
            if (is_full and sizes[-1]) or sizes[-1] == self.batch_size:
                sizes.append(0)
            sizes[-1] += 1
        return sizes


def token_lengths(what: str, lengths: Iterable[int], max_tokens: int) -> Tensor:
    """The tokens of each sample, checked; errors name what they are for.

    Raises:
        TypeError: A length, or `max_tokens`, is no whole number.
        ValueError: A sample has no token, or more than `max_tokens`; or there is no sample.
    """
    if type(max_tokens) is not int or max_tokens < 1:
        kind = ValueError if type(max_tokens) is int else TypeError
        raise kind(f"{what}(max_tokens={max_tokens!r}): needs a whole number of tokens, from 1")
    found: list[int] = []
    for index, length in enumerate(lengths):
        try:
            found.append(operator.index(length))
        except TypeError:
            raise TypeError(
                f"{what}(max_tokens=...) got {length!r} as the length of sample {index}: needs "
                "its number of tokens, as len(...) gives"
            ) from None
        if found[-1] < 1:
            raise ValueError(
                f"{what}(max_tokens=...): sample {index} has {found[-1]} tokens; leave empty "
                "samples out of the data set"
            )
        if found[-1] > max_tokens:
            raise ValueError(
                f"{what}(max_tokens={max_tokens}): sample {index} has {found[-1]} tokens; cut it "
                "into shorter ones, leave it out, or raise max_tokens"
            )
    if not found:
        raise ValueError(f"{what}(max_tokens=...) got no samples: give at least one")
    return torch.tensor(found)
