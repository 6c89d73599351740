"""Losses that are no mean over the samples of a batch: one warning each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.nn import (
    CrossEntropyLoss,
    HingeEmbeddingLoss,
    NLLLoss,
    PoissonNLLLoss,
    functional,
)

from ..checks import warn
from ..outputs import IGNORED, Output

Shape = tuple[int, ...]
BY_CLASSES = (functional.cross_entropy, functional.nll_loss)
"""Their means are over the weights of the targets' classes; those of other losses, over targets."""

PAIRING = (functional.poisson_nll_loss, functional.hinge_embedding_loss)
"""Torch 2.13 broadcasts in these without its warning of other losses."""


def is_a_sum(loss_fn: Any, weight: Any) -> bool:
    """True for a loss function with `reduction="sum"`, as attribute or in a `partial`.

    Such a loss grows with the batch: this warns if no weight says what it is a sum over.
    """
    is_sum = _option(loss_fn, "reduction") == "sum"
    if is_sum and weight is None:
        warn(
            "loss_fn is a sum over the batch, so larger batches take larger steps, and 'val/loss' "
            "is a mean of sums; say how many targets it is a sum over, weight=lambda output: "
            "output.target.numel(), or weight=1 if that is what you want"
        )
    return is_sum


def _option(loss_fn: Any, name: str, otherwise: Any = None) -> Any:
    """An option of a loss function, as attribute or in a `partial`."""
    given = getattr(loss_fn, "keywords", {})
    return given.get(name, getattr(loss_fn, name, otherwise))


def check_parts(loss_fn: Any, target: Any, counts: str) -> None:
    """Warn if a step is made of several parts, and their losses are means over some targets.

    Args:
        loss_fn: The loss function.
        target: The target of a batch.
        counts: What is a part of a step, and how it counts.
    """
    if not isinstance(target, Tensor) or target.is_floating_point():
        return
    ignored = _option(loss_fn, "ignore_index", IGNORED)
    is_torchs = getattr(loss_fn, "func", loss_fn) in BY_CLASSES
    by_classes = is_torchs or isinstance(loss_fn, CrossEntropyLoss | NLLLoss)
    if by_classes and _option(loss_fn, "weight") is not None:
        over = "over targets by the weights of their classes"
        count = "lambda output: class_weights[output.target].sum()"
    elif (target == ignored).any():
        over = f"over the targets that are not {ignored}"
        count = f"lambda output: (output.target != {ignored}).sum()"
        count = "count_tokens" if ignored == IGNORED else count
    else:
        return
    warn(
        f"the loss is a mean {over}, and {counts}: the step is not that of one large batch. Say "
        f"what to count: supervised(..., weight={count})"
    )


def pairs(loss_fn: Any) -> bool:
    """True for a loss that compares a column with a row, each value with each, without a word."""
    is_one = isinstance(loss_fn, PoissonNLLLoss | HingeEmbeddingLoss)
    return is_one or getattr(loss_fn, "func", loss_fn) in PAIRING


def check_shapes(output: Output) -> None:
    """Warn if predictions and targets differ in their number of dimensions."""
    found, wanted = output.prediction, output.target
    if isinstance(found, Tensor) and isinstance(wanted, Tensor) and found.ndim != wanted.ndim:
        warn(
            f"the predictions of a batch are {list(found.shape)} and its targets "
            f"{list(wanted.shape)}, so the loss compares each prediction with each target. Give "
            "both one shape, such as model(x).squeeze(1) or target.unsqueeze(1)"
        )


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
