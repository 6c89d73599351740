"""Losses that are no mean over the samples of a batch: one warning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ..checks import warn
from ..outputs import Output

Shape = tuple[int, ...]


def is_a_sum(loss_fn: Any, weight: Any) -> bool:
    """True for a loss function with `reduction="sum"`, as attribute or in a `partial`.

    Such a loss grows with the batch: this warns if no weight says what it is a sum over.
    """
    given = getattr(loss_fn, "keywords", {}).get("reduction")
    is_sum = (given or getattr(loss_fn, "reduction", None)) == "sum"
    if is_sum and weight is None:
        warn(
            "loss_fn is a sum over the batch, so larger batches take larger steps, and 'val/loss' "
            "is a mean of sums; say how many targets it is a sum over, weight=lambda output: "
            "output.target.numel(), or weight=1 if that is what you want"
        )
    return is_sum


@dataclass(slots=True)
class Shapes:
    """The shapes of an evaluation's targets, to find out whether their first dimension is time."""

    first: Shape = ()
    latest: Shape = ()
    count: int = 0
    is_even: bool = True
    """True while all but the latest have the same second dimension."""
    lengths: set[int] = field(default_factory=set)
    """Their first dimensions."""

    def add(self, output: Output) -> None:
        """Note a batch."""
        counted = output.target if isinstance(output.target, Tensor) else output.prediction
        if not isinstance(counted, Tensor) or counted.ndim < 2:
            return
        self.count += 1
        shape = tuple(counted.shape[:2])
        self.first = self.first or shape
        self.is_even &= self.count < 2 or self.latest[1] == self.first[1]
        self.latest = shape
        self.lengths.add(shape[0])

    def check(self, data: Any) -> None:
        """Warn if the last batch is smaller in its second dimension: samples are then second."""
        if self.count < 2 or not self.is_even or self.latest[1] >= self.first[1]:
            return
        if hasattr(data, "batch_size"):  # of a loader, it says which dimension that is
            is_time_first = data.batch_size == self.first[1] != self.first[0]
        else:
            is_time_first = len(self.lengths) == 1
        if is_time_first:
            warn(
                f"the targets of a batch are {list(self.first)}, and of the last one "
                f"{list(self.latest)}: so samples are the second dimension, and each batch counts "
                "by its first. Say what the loss is a mean over: supervised(..., "
                "weight=lambda output: output.target.numel()), or output.target.shape[1]"
            )
