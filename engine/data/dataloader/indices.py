"""Which samples a loader is asked for: the indices of each batch, from any batch on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from torch.utils.data import BatchSampler

from ...state import seed_of
from ..loaders import Placed
from ..shares import Dealt


class Indices:
    """The indices of each batch of a pass, from any batch on, with a seed for each batch."""

    def __init__(self, sampler: Iterable[Any], is_batched: bool = True) -> None:
        self.sampler, self.is_batched = sampler, is_batched
        self.shares: dict[int, float] = {}
        """By the number of a batch that is still to come: its weight, if it is not 1."""
        self.begin(0, None)

    def begin(self, first: int, key: tuple[int, ...] | None, samples: int | None = None) -> None:
        """Begin the next pass after the `first` batches.

        Args:
            first: How many batches are skipped.
            key: Makes a seed for each batch; without it there are none.
            samples: How many samples are skipped, over all ranks, if that is known.
        """
        self.first, self.key, self.samples = first, key, samples
        self.number = self.place = 0
        self.pass_number: int | None = None
        self.shares.clear()
        self._indices: Iterator[Any] = iter(())
        if isinstance(self.sampler, Dealt):
            self.sampler.begin(first, samples or 0)

    def tell_places(self, number: int) -> None:
        """Give the place of each sample in this pass, too."""
        self.pass_number = number

    def skip(self) -> None:
        """Draw the indices of the skipped batches, unless that has happened."""
        missing = max(0, self.first - self.number)
        if not missing:
            return
        if isinstance(self.sampler, Dealt):  # begins there
            self.number = self.first
        elif type(self.sampler) is BatchSampler:  # in one go, without making the batches
            size, ones = self.sampler.batch_size, iter(self.sampler.sampler)
            each = 1 if self.is_batched else size  # without batches, a list counts as one sample
            wanted = missing * size if self.samples is None else self.samples * each
            found = sum(1 for _ in islice(ones, wanted))
            # The last skipped batch may be short.
            self.number += missing if found > wanted - size else found // size
            self.place = found
            self._indices = iter(BatchSampler(ones, size, self.sampler.drop_last))
        else:
            wanted = missing if self.is_batched or self.samples is None else self.samples
            for indices in islice(self._indices, wanted):
                self.number += 1
                self.place += _count(indices)
            if self.number == wanted:
                self.number = self.first

    def __iter__(self) -> Iterator[Any]:
        """Begin to draw; a loader may call this twice for a pass, and uses the second iterator."""
        self._indices, self.number, self.place = iter(self.sampler), 0, 0
        return self._rest()

    def _rest(self) -> Iterator[Any]:
        self.skip()
        dealt = self.sampler if isinstance(self.sampler, Dealt) else None
        for indices in self._indices:
            self.number += 1
            if dealt is not None and dealt.share != 1:
                self.shares[self.number] = dealt.share
            number = self.pass_number
            asked = indices if number is None else self._placed(indices, number, dealt)
            yield asked if self.key is None else (seed_of(*self.key, self.number), asked)

    def _placed(self, indices: Any, number: int, dealt: Dealt | None) -> Any:
        """These indices, each with its place in the pass over all ranks."""
        if dealt is None:
            begin, step = self.place, 1
            self.place += _count(indices)
        else:
            step = dealt.sampler.num_replicas
            begin = dealt.place + (dealt.sampler.rank if dealt.share else 0)
        if not isinstance(indices, list):
            return Placed(indices, number, begin)
        return [Placed(index, number, begin + at * step) for at, index in enumerate(indices)]


def _count(indices: Any) -> int:
    return len(indices) if isinstance(indices, list) else 1
