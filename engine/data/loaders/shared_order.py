"""One order of samples, dealt out to any number of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DistributedSampler, Sampler

from ... import ranks


class SharedOrder(DistributedSampler[Any]):
    """Deals the order of any sampler out to the ranks, as `DistributedSampler` does its own.

    The order is drawn anew each epoch, by the seed and the epoch's number, so it is the same on
    any number of ranks and on one process. A sampler without a `generator` of its own has to give
    the same order on every rank.

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
        """Deal out to the ranks of the run.

        Args:
            sampler: Gives the whole order, as torch's `WeightedRandomSampler` and
                `SubsetRandomSampler` do; it has a length.
            seed: Of its generator, with the number of the epoch.
            num_replicas: How many share the samples; by default the ranks.
            rank: Which of them this is.
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
