"""Samplers that deal one order out to any number of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler, Sampler

from ... import ranks


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
        """
        super().__init__(
            sampler,  # type: ignore[arg-type]  # only its length is asked for
            num_replicas=ranks.data_world_size() if num_replicas is None else num_replicas,
            rank=ranks.data_rank() if rank is None else rank,
            shuffle=False,
            seed=seed,
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

    >>> batches = LengthBatches([5, 1, 4, 2, 3, 6], batch_size=2, shuffle=False)
    >>> list(batches)
    [[1, 3], [4, 2], [0, 5]]
    """

    def __init__(
        self,
        lengths: Iterable[int],
        batch_size: int,
        *,
        shuffle: bool = True,
        pool: int = 50,
        drop_last: bool = False,
        seed: int = 0,
    ) -> None:
        """Store the lengths.

        Args:
            lengths: The length of each sample, in the order of the data set.
            batch_size: Samples of a batch, on all ranks together.
            shuffle: False to sort all samples once, for evaluation.
            pool: How many batches are sorted together: more mean less padding, fewer mean a more
                random order.
            drop_last: Leave out samples that do not fill a batch, other samples in each epoch.
            seed: The seed of the order; the number of the epoch is added. The same on all ranks.

        Raises:
            ValueError: The batch or the pool has no size, or a rank would have no sample.
        """
        self.lengths = torch.as_tensor(list(lengths))
        self.batch_size, self.pool = batch_size, pool
        self.shuffle, self.drop_last, self.seed = shuffle, drop_last, seed
        self.rank, self.num_replicas = ranks.data_rank(), ranks.data_world_size()
        self.epoch = 0
        least = batch_size if drop_last else self.num_replicas
        if batch_size < self.num_replicas or pool < 1:
            raise ValueError(
                f"LengthBatches(batch_size={batch_size}, pool={pool}): needs a sample for each of "
                f"{self.num_replicas} ranks, and a batch in each pool"
            )
        if len(self.lengths) < least:
            raise ValueError(f"LengthBatches got {len(self.lengths)} lengths: needs {least}")

    def set_epoch(self, epoch: int) -> None:
        """Shuffle for this epoch, counted from 0; the engine calls it."""
        self.epoch = epoch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.lengths), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.whole():
            yield batch[self.rank :: self.num_replicas] or batch[:1]

    def whole(self) -> Iterator[list[int]]:
        """The batches of the epoch, each over all ranks."""
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        batches = self._batches(generator)
        if self.shuffle:
            batches = [batches[i] for i in torch.randperm(len(batches), generator=generator)]
        for batch in batches:
            yield batch.tolist()

    def _batches(self, generator: torch.Generator) -> list[Tensor]:
        """The batches of an epoch over all ranks, not yet in random order."""
        count, size = len(self.lengths), self.batch_size
        pool = size * self.pool if self.shuffle else count
        order = torch.randperm(count, generator=generator) if self.shuffle else torch.arange(count)
        if self.drop_last:
            order = order[: len(self) * size]
        pools = (part[self.lengths[part].argsort(stable=True)] for part in order.split(pool))
        return [batch for part in pools for batch in part.split(size)]
