"""Losses of what they do not take, such as a softmax of a softmax: a warning each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..explain import warn

MOST = 100
"""The most operations at the end of a loss that are looked at."""
SHAPES = {"Alias", "Clone", "Permute", "ReshapeAlias", "Select", "Slice", "Squeeze", "T", "ToCopy"}
SHAPES |= {"Transpose", "UnsafeView", "View"}
"""Operations that leave values as they are."""
PAIRS = {"Add", "Div", "Mul", "Rsub", "Sub"}
OF_LOSSES = {"Abs", "Clamp", "ClampMin", "Exp", "Log", "Mean", "Neg", "Pow", "Sqrt", "Sum", "Where"}
OF_LOSSES |= {"BinaryCrossEntropyWithLogits", "LogSoftmax", "NllLoss", "NllLoss2D"}
OF_LOSSES |= PAIRS | SHAPES
"""Operations of which losses are made, by autograd's names; behind others the model begins."""
SCORES = {"Addmm", "Convolution", "Linear", "Mm", "Relu", "Sigmoid", "Softmax"}
"""Operations that make no logarithms of probabilities."""
NEW_AXIS = {"Expand", "ReshapeAlias", "UnsafeView", "Unsqueeze", "View"}
"""Those that make a column of numbers on purpose, to pair each with each."""


def warn_of_loss(loss: Any) -> None:
    """Warn of a loss that is computed of what it does not take.

    It looks at the graph of autograd, so that it knows losses of torch, and those made by hand.
    """
    told = dict.fromkeys(filter(None, map(_mistake, _operations(getattr(loss, "grad_fn", None)))))
    for mistake in told:
        warn(mistake)


def _operations(last: Any) -> Iterator[Any]:
    """The operations of a loss, from its end."""
    left, count = [last], 0
    while left and count < MOST:
        node, count = left.pop(0), count + 1
        if node is not None and _kind(node) in OF_LOSSES:
            yield node
            left += (each for each, _ in node.next_functions)


def _mistake(node: Any) -> str:
    """What is wrong with the input of an operation; or empty."""
    kind = _kind(node)
    if kind == "LogSoftmax" and _source(node) == "Softmax":
        return (
            "the loss takes the softmax of a softmax: cross_entropy takes raw scores (logits), and "
            "of probabilities it learns little. Leave the softmax out of the model, and take "
            "prediction.softmax(1) where you need probabilities"
        )
    if kind == "BinaryCrossEntropyWithLogits" and _source(node) in ("Sigmoid", "Softmax"):
        return (
            "the loss takes the sigmoid of probabilities: binary_cross_entropy_with_logits takes "
            "raw scores (logits). Leave the sigmoid out of the model, or take binary_cross_entropy"
        )
    if kind in ("NllLoss", "NllLoss2D") and _source(node) in SCORES:
        return (
            "nll_loss takes logarithms of probabilities, and it got probabilities or raw scores: "
            "take cross_entropy for raw scores, or give it prediction.log_softmax(1)"
        )
    shape = [*node._input_metadata[0].shape]
    if kind not in PAIRS or len(shape) < 2 or not shape[0] == shape[1] > 1:
        return ""
    inputs = [(_kind(e), [*e._input_metadata[n].shape]) for e, n in node.next_functions if e]
    if len(inputs) != 1 or inputs[0][0] == "AccumulateGrad":
        return ""
    factors = (getattr(node, name, None) for name in ("_saved_self", "_saved_other"))
    if any([*each.shape] == shape for each in factors if each is not None):
        return ""  # a mask of each with each, such as who is at risk when
    (made_by, own), row, column = inputs[0], shape[1:], [shape[0], 1, *shape[2:]]
    if own == row or (own == column and made_by not in NEW_AXIS):
        return (
            f"the loss pairs each prediction with each target: predictions of shape {own} and "
            f"targets of shape {column if own == row else row} make values of shape {shape}. Give "
            "both one shape, such as target.view_as(prediction)"
        )
    return ""


def _source(node: Any) -> str:
    """The kind of the operation that made the input of another one, whatever its shape is now."""
    source = node.next_functions[0][0]
    while source is not None and _kind(source) in SHAPES:
        source = source.next_functions[0][0]
    return "" if source is None else _kind(source)


def _kind(node: Any) -> str:
    return type(node).__name__.partition("Backward")[0]
