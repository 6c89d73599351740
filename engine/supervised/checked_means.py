"""Losses that are no mean over the samples of a batch: one warning, in an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.nn import Module

from ..checks import warn, words_in
from ..outputs import Output
from ..state import capture_generators, restore_generators
from .loss_parts import split_loss
from .nested import map_tensors, tensors_of

FEW = 3
"""The samples of which a loss is computed again."""
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


class SumCheck:
    """Checks whether a loss function adds up samples, with the first batch of an evaluation.

    It checks only functions without a state whose code names a sum. It calls the function once with
    the first few samples, and once with each of these samples alone.
    """

    def __init__(self, loss_fn: Callable[..., Any]) -> None:
        self.loss_fn = loss_fn
        is_stateful = isinstance(loss_fn, Module) and bool(loss_fn.state_dict())
        self.is_due: bool = not is_stateful and _names_a_sum(loss_fn)

    def look(self, made: Any, target: Any, samples: int) -> None:
        """Warn if the loss of a few samples is the sum of the losses of each."""
        tensors = [each for each in tensors_of((made, target)) if each.ndim]
        if samples < FEW or any(len(each) != samples for each in tensors):
            return
        self.is_due = False
        rng = capture_generators()
        with suppress(Exception):  # a loss may need more than one sample
            whole, *parts = (
                float(split_loss(self.loss_fn(*_rows((made, target), start, end)))[0])
                for start, end in ((0, FEW), *((n, n + 1) for n in range(FEW)))
            )
            is_half = any(each.element_size() == 2 for each in tensors)
            if whole and abs(sum(parts) - whole) <= (0.02 if is_half else 1e-4) * abs(whole):
                warn(
                    "loss_fn adds up the samples of a batch, so larger batches take larger steps, "
                    "and the loss of an evaluation is a mean of sums; divide by what it is a sum "
                    "over, loss_fn=lambda output, target: loss_fn(output, target) / len(target), "
                    "or say weight=1 if a mean of sums is what you want"
                )
        restore_generators(rng)


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


def _rows(nested: Any, start: int, end: int) -> Any:
    # A copy, since the function may write into it.
    return map_tensors(nested, lambda each: each[start:end].clone() if each.ndim else each)


def _names_a_sum(function: Any) -> bool:
    """True if the code of a function, or of one that it calls, names a sum."""
    if isinstance(function, Module):
        inside = [*function.modules()]
        if any(getattr(each, "reduction", None) == "sum" for each in inside):
            return True
        # A class of torch.jit has none that could be read.
        functions: list[Any] = [getattr(type(each), "forward", None) for each in inside]
    else:
        functions = [function]
    return "sum" in words_in(functions)
