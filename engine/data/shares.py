"""A rank's share of the samples, without the padding of `DistributedSampler`."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from itertools import islice
from typing import Any, TypeGuard

from torch.utils.data import BatchSampler, DistributedSampler


class Share:
    """The indices of a `DistributedSampler`, without the samples that it repeats as padding.

    The sampler deals samples out in turn: sample i of a rank is number `rank + i * ranks` of all.
    So its padding begins where these numbers exceed the number of samples.

    >>> padded = DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False)
    >>> list(padded), list(Share(padded))
    ([1, 3, 0], [1, 3])
    """

    def __init__(self, sampler: DistributedSampler[Any]) -> None:
        self.sampler = sampler
        samples: Any = sampler.dataset
        count, ranks = len(samples), sampler.num_replicas
        if count < ranks:
            raise ValueError(
                f"an evaluation of {count} samples on {ranks} ranks leaves some without any; "
                "give every rank all samples, by a DataLoader without a sampler"
            )
        self.length = min(len(sampler), len(range(sampler.rank, count, ranks)))

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.sampler), self.length)

    def __len__(self) -> int:
        return self.length


def unpadded(sampler: Any) -> Any:
    """A sampler or batch sampler as it is, or with the share of a padded `DistributedSampler`.

    A batch sampler of accelerate's, which repeats samples by `even_batches`, is told not to.
    """
    if getattr(sampler, "even_batches", False):
        sampler = copy(sampler)
        sampler.even_batches = False
        return sampler
    if type(sampler) is BatchSampler and _pads(ones := sampler.sampler):
        share: Any = Share(ones)  # a BatchSampler takes whatever can be iterated
        return BatchSampler(share, sampler.batch_size, sampler.drop_last)
    return Share(sampler) if _pads(sampler) else sampler


def _pads(sampler: Any) -> TypeGuard[DistributedSampler[Any]]:
    """True for a `DistributedSampler` that deals samples out in torch's own way."""
    return isinstance(sampler, DistributedSampler) and (
        type(sampler).__iter__ is DistributedSampler.__iter__
    )
