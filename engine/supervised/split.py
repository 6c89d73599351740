"""Batches that do not fit on the device: a part at a time, with the same mean over all samples."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..outputs import Output
from ..state import State, capture_generators, restore_generators
from ..update import MicroBatch, Update
from .loss_parts import joined_parts
from .nested import map_tensors, tensors_of

if TYPE_CHECKING:
    from ..engine import Engine

logger: logging.Logger = logging.getLogger("camshaft")
OUT_OF_MEMORY = torch.cuda.OutOfMemoryError  # of every device: torch.OutOfMemoryError since 2.5


Forward = Callable[[tuple[Any, Any]], tuple[Tensor | None, Output]]
"""Computes, from a pair of input and target, the loss for the backward pass and the output.

The loss is the mean in the output; or a sum, if the output has a weight.
"""


@dataclass
class Largest:
    """The most samples that fit on the device at once; None while every batch did."""

    training: int | None = None
    evaluation: int | None = None


@dataclass(frozen=True, eq=False)
class Split:
    """Takes batches through the model in parts of at most `most` samples."""

    most: int | None
    """None to halve the parts whenever memory runs out."""

    @classmethod
    def of(cls, most: int | str, update: Update | None) -> Split:
        """The split into parts of at most so many samples, or of `"auto"`."""
        if most == "auto":
            number = None
        elif isinstance(most, int) and not isinstance(most, bool) and most > 0:
            number = most
        else:
            raise ValueError(f"split={most!r}: needs a number of samples, from 1, or 'auto'")
        if update is not None and update.needs_closure:
            raise ValueError(
                f"split= does not go with {type(update.optimizer).__name__}, which evaluates a "
                "batch several times; make the batches smaller and accumulate= more of them"
            )
        return cls(number)

    def attach(self, engine: Engine[Any, Any]) -> None:
        """No events; attached only so that `state.recall` has a name for it."""

    def take(
        self,
        state: State[Any, Any],
        pair: tuple[Any, Any],
        forward: Forward,
        micro: MicroBatch | None = None,
    ) -> Output:
        """The output of a whole batch; in training, its gradients are added to the micro-batch."""
        take = partial(_in_parts, state, pair, forward, micro)
        if self.most is not None:
            return take(self.most)
        samples, rng = common_length(pair), capture_generators()
        put_back = None if micro is None else micro.copy()
        largest = (state if state.training else state.parent or state).recall(self, Largest)
        kind = "training" if state.training else "evaluation"
        while True:
            most = getattr(largest, kind) or samples
            try:
                return take(most)
            except OUT_OF_MEMORY:
                if most == 1:
                    raise
            # Outside of the except clause, because the error keeps the memory in use.
            setattr(largest, kind, min(most, samples) // 2)
            logger.warning(
                "out of memory with %d samples at once; in %s there are now %d at most",
                *(min(most, samples), kind, getattr(largest, kind)),
            )
            restore_generators(rng)
            if put_back is not None:
                put_back()


def _in_parts(
    state: State[Any, Any],
    pair: tuple[Any, Any],
    forward: Forward,
    micro: MicroBatch | None,
    most: int,
) -> Output:
    outputs: list[Output] = []
    fractions: list[float] = []
    for part, fraction, more in parts(pair, most):
        if micro is None:
            _, output = forward(part)
        else:
            with micro.part(more=more):
                loss, output = forward(part)
                if loss is None:
                    raise _no_loss_of_a_part()
                is_sum = output.weight is not None
                micro.backward(loss if is_sum else loss * fraction, is_sum=is_sum)
        outputs.append(output)
        fractions.append(fraction)
    samples = common_length(pair)
    output = _whole(outputs, fractions, [round(each * samples) for each in fractions])
    if output.loss is not None:
        state.metrics.replace("loss", output.loss)
        if output.parts is not None:
            state.metrics.claim(output.parts)
    return output


def _whole(outputs: list[Output], fractions: list[float], sizes: list[int]) -> Output:
    """The output of a whole batch, from those of its parts and their fractions of the samples."""
    losses, predictions, targets, weights, counts, named, wholes = zip(*outputs, strict=True)
    weight = loss = None
    shares: list[Any] = fractions
    if all(each is not None for each in weights):
        weight = sum(weights)
        some = weight + (weight == 0)  # without any target, the loss is 0
        shares = [each / some for each in weights]
        loss = torch.as_tensor(_mean(losses, shares))
    elif all(each is not None for each in losses):
        loss = torch.as_tensor(_mean(losses, fractions))
    elif any(each is not None for each in losses):
        raise _no_loss_of_a_part()
    samples = None if None in counts else sum(counts)
    known: dict[int, Any] = {}

    def join(column: tuple[Tensor, ...]) -> Any:
        is_number = not column[0].ndim
        known[id(column[0])] = _mean(column, fractions) if is_number else torch.cat(column)
        return known[id(column[0])]

    def rows(column: tuple[Tensor, ...]) -> Any:
        """Like `join`, for a model's whole output: what has no row for each sample is None."""
        if id(column[0]) in known:  # a part of the prediction
            return known[id(column[0])]
        if not column[0].ndim:
            return _mean(column, shares)
        have_rows = all(each.shape[:1] == (n,) for each, n in zip(column, sizes, strict=True))
        return torch.cat(column) if have_rows else None

    prediction, target = _joined(predictions, join), _joined(targets, join)
    are_alike = len({len(tensors_of(each)) for each in wholes}) == 1
    whole = _joined(wholes, rows) if are_alike else None
    parts = None if loss is None else joined_parts(named, partial(_mean, fractions=shares))
    return Output(loss, prediction, target, weight, samples, parts, whole)


def _no_loss_of_a_part() -> ValueError:
    return ValueError(
        "the loss function gave None for a part of a batch; with split= it needs to give a loss "
        "for each part"
    )


def _joined(trees: tuple[Any, ...], join: Callable[[tuple[Tensor, ...]], Any]) -> Any:
    """Join the tensors of equal structures; other values come from the first structure."""
    if len(trees) == 1:
        return trees[0]
    joined = iter([*map(join, zip(*map(tensors_of, trees), strict=True))])
    return map_tensors(trees[0], lambda _: next(joined))


def _mean(values: tuple[Any, ...], fractions: list[Any]) -> Any:
    return sum(value * fraction for value, fraction in zip(values, fractions, strict=True))


def parts(pair: tuple[Any, Any], most: int) -> Iterator[tuple[tuple[Any, Any], float, bool]]:
    """Parts of at most so many samples: input and target, their fraction, and whether more follow.

    They are as even as can be: a small last part would be a small batch to a batch norm.

    >>> [len(input) for (input, _), *_ in parts((torch.zeros(7, 2), torch.zeros(7)), 3)]
    [2, 2, 3]
    """
    samples = common_length(pair)
    count = -(-samples // most)
    edges = [number * samples // count for number in range(count + 1)]
    for start, end in pairwise(edges):
        part = map_tensors(pair, partial(_rows, start, end))
        yield part, (end - start) / samples, end < samples


def _rows(start: int, end: int, tensor: Tensor) -> Tensor:
    return tensor[start:end] if tensor.ndim else tensor


def common_length(pair: tuple[Any, Any]) -> int:
    """The length of the first dimension of all tensors that have one."""
    lengths = {len(tensor) for tensor in tensors_of(pair) if tensor.ndim}
    if len(lengths) != 1:
        raise ValueError(
            f"split= cuts tensors along their first dimension, the samples, and the tensors of "
            f"this batch have the lengths {sorted(lengths)}; give prepare_batch=, a function that "
            "makes a pair of tensors with one length of a batch"
        )
    (samples,) = lengths
    return samples
