"""Evaluations of sharded models: equally many forward passes on each rank, since each needs all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .. import ranks
from ..state import Batch, State
from .in_step import InStep
from .iterators import END


class Along(InStep):
    """Lets a rank that has no more batches take part in the forward passes of the others.

    It makes them with its last batch, and nobody sees the result. Where every rank knows its
    number of batches, they compare the numbers once; else they ask one another before each batch.
    """

    def __init__(self, forward: Callable[[Any], object]) -> None:
        """Make the passes beyond the own batches by `forward(batch)`."""
        super().__init__()
        self._forward = forward
        self._most: int | None = None

    def agree(self, data: Iterable[Any], length: int | None) -> int | None:
        """The number of batches of this rank; None if it is unknown.

        Raises:
            ValueError: A rank has no batch.
        """
        super().agree(data, length)
        nobody = -ranks.world_size()
        empty = nobody if length != 0 else -ranks.rank()
        most, asks, empty = ranks.most([length or 0, length is None, empty])
        if empty != nobody:
            raise ValueError(
                f"rank {-empty} has no batch to evaluate on, and the forward pass of a "
                "sharded model needs all ranks; give each rank one at least"
            )
        self._most = None if asks else most
        return length

    def batches(self, batches: Iterator[Batch], state: State[Any, Any]) -> Iterator[Batch]:
        """The batches of this rank; after them it goes along with the others."""
        passes, last = 0, None
        while True:
            batch = next(batches, END)
            passes += 1
            if self._is_over(passes, batch is END):
                return
            if batch is not END:
                last = batch
                yield batch
            else:
                self._forward(last)

    def _is_over(self, passes: int, has_ended: bool) -> bool:
        if self._most is not None:
            return has_ended and passes > self._most
        return not ranks.any_rank(not has_ended)
