"""Batches that do not fit on the device: a part at a time, with the same mean over all samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ..outputs import Output
from ..state import State
from ..update import MicroBatch, Update
from .loss_parts import joined_parts
from .nested import map_tensors, tensors_of

Forward = Callable[[tuple[Any, Any]], tuple[Tensor | None, Output]]
"""Computes, from a pair of input and target, the loss for the backward pass and the output.

The loss is the mean in the output; or a sum, if the output has a weight.
"""


def check_split(most: object, update: Update | None) -> None:
    """Refuse a size of parts that is no number of samples, or that the optimizer cannot go by."""
    if type(most) is not int or most < 1:
        raise ValueError(
            f"split={most!r}: needs a number of samples, from 1; find_batch_size finds how many fit"
        )
    if update is not None and update.needs_closure:
        raise ValueError(
            f"split= does not go with {type(update.optimizer).__name__}, which evaluates a "
            "batch several times; make the batches smaller and accumulate= more of them"
        )


def in_parts(
    state: State[Any, Any],
    pair: tuple[Any, Any],
    forward: Forward,
    most: int,
    micro: MicroBatch | None = None,
) -> Output:
    """The output of a whole batch, by parts of at most `most` samples.

    In training, their gradients are added to the micro-batch.
    """
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
