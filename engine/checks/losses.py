"""Losses of what they do not take, such as a softmax of a softmax: a warning each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..explain import warn
from ..state import is_plain_tensor

MOST = 100
"""The most operations at the end of a loss that are looked at."""
SHAPES = {
    *("Alias", "Clone", "Permute", "ReshapeAlias", "Select", "Slice", "Squeeze", "T", "ToCopy"),
    *("Transpose", "UnsafeView", "View"),
}
"""Operations that leave values as they are."""
PAIRS = {"Div", "Mul", "Rsub", "Sub", "Where"}
OF_KNOWN = {"Div", "Mul", "Where"}
"""Those that keep what else they have had."""
OF_LOSSES = (
    PAIRS
    | SHAPES
    | {
        *("Abs", "Add", "Clamp", "ClampMin", "Exp", "Log", "Mean", "Neg", "NllLoss", "NllLoss2D"),
        *("Pow", "Sqrt", "Sum"),
    }
)
"""Operations of which losses are made, by autograd's names; behind others the model begins."""
OF_SCORES = {"BinaryCrossEntropyWithLogits", "CtcLoss", "LogSoftmax", "NllLoss", "NllLoss2D"}
"""Those that take what the model makes."""
OF_SHARDS = {"BinaryCrossEntropy", "HuberLoss", "MseLoss", "SmoothL1Loss"}
"""Those of which torch 2.13 takes the mean on each rank, and whose gradient does not divide."""
LABELS = {"BinaryCrossEntropyWithLogits", "SoftMarginLoss"}
"""Those whose labels are in a range."""
LINEAR = SHAPES | {"Add", "Div", "Mean", "Mul", "Neg", "Sum"}
"""Those behind which a loss is still a sum of products."""
SCORES = {"Addmm", "Convolution", "Linear", "Mm", "Relu", "Sigmoid", "Softmax"}
"""Operations that make no logarithms of probabilities."""
VIEWS = {"ReshapeAlias", "UnsafeView", "View"}
NEW_AXIS = VIEWS | {"Expand", "Unsqueeze"}
"""Those that make a column of numbers on purpose, to pair each with each."""


def warn_of_loss(loss: Any) -> None:
    """Warn of a loss that is computed of what it does not take.

    It looks at the graph of autograd, so that it knows losses of torch, and those made by hand.
    """
    made = getattr(loss, "grad_fn", None)
    for mistake in dict.fromkeys(_mistakes(made)):
        warn(mistake)
    shards = getattr(loss, "placements", None)
    if (
        shards
        and _kind(made) in OF_SHARDS
        and "avg" in [getattr(e, "reduce_op", "") for e in shards]
    ):
        warn(
            f"torch takes {_kind(made)} of each rank's shard by itself: its gradient is as many "
            "times too large as there are ranks, and the loss another one if shards differ. Write "
            'the loss with reduction="none", and .mean() of that'
        )


def saved(node: Any, name: str) -> Any:
    """What an operation keeps for its gradient, unless a hook would compute or load it first."""
    raw = getattr(node, f"_raw_saved_{name}", None)
    # Torch 2.9 does not tell of a hook.
    is_hooked = raw is None or getattr(raw, "unpack_hook", None) is not None
    return None if is_hooked else getattr(node, f"_saved_{name}")


def _mistakes(last: Any) -> Iterator[str]:
    """What is wrong in the operations of a loss, from its end."""
    left, count = list[tuple[Any, tuple[int, ...], bool]]([(last, (), True)]), 0
    while left and count < MOST:
        (node, below, is_sum), count = left.pop(0), count + 1
        if (kind := _kind(node)) in OF_SCORES:
            yield from _of_scores(kind, _source(node))
            yield from _of_classes(kind, node)
            yield from _of_places(node)
        if kind in LABELS:
            yield from _of_labels(kind, node)
        if kind in OF_LOSSES:
            shape = (*node._input_metadata[0].shape,)
            if kind in PAIRS and len(shape) > 1 and shape[0] == shape[1] > 1:
                yield from _of_pairs(node, kind, shape, is_mean=below in ((), shape))
            if is_sum and kind == "Sub":
                yield from _of_divergence(node)
            is_sum = is_sum and kind in LINEAR
            left += ((each, below or shape, is_sum) for each, _ in node.next_functions)


def _of_scores(kind: str, source: str) -> Iterator[str]:
    """A loss of what another operation than a model's last layer has made."""
    if kind == "LogSoftmax" and source == "Softmax":
        yield (
            "the loss takes the softmax of a softmax: cross_entropy takes raw scores (logits), and "
            "of probabilities it learns little. Leave the softmax out of the model, and take "
            "prediction.softmax(1) where you need probabilities"
        )
    if kind == "BinaryCrossEntropyWithLogits" and source in ("Sigmoid", "Softmax"):
        yield (
            "the loss takes the sigmoid of probabilities: binary_cross_entropy_with_logits takes "
            "raw scores (logits). Leave the sigmoid out of the model, or take binary_cross_entropy"
        )
    if kind == "BinaryCrossEntropyWithLogits" and source == "Relu":
        yield (
            "binary_cross_entropy_with_logits got scores from a ReLU, which are never below 0, so "
            "that no probability is below a half: leave the last ReLU out of the model"
        )
    if kind == "CtcLoss" and source in SCORES:
        yield (
            "ctc_loss takes logarithms of probabilities, and it got probabilities or raw scores: "
            "give it prediction.log_softmax(2)"
        )
    if kind.startswith("Nll") and source in SCORES:
        yield (
            "nll_loss takes logarithms of probabilities, and it got probabilities or raw scores: "
            "take cross_entropy for raw scores, or give it prediction.log_softmax(1)"
        )


def _of_classes(kind: str, node: Any) -> Iterator[str]:
    """Scores of one class, or of samples in the place of classes."""
    made = node if kind == "LogSoftmax" else node.next_functions[0][0]
    if kind.startswith("Nll") and _kind(made) == "Log":
        made = _made_by(made, {*SHAPES, "Add"})
    if _kind(made) not in ("LogSoftmax", "Softmax"):
        return
    shape, axis = made._input_metadata[0].shape, made._saved_dim
    axis -= 2**64 if axis >= 2**63 else 0
    if kind == "LogSoftmax" and shape and shape[axis] == 1:
        yield (
            f"the loss takes the softmax of one score: of shape {[*shape]} it is always 1, and the "
            "loss 0. For one score a sample, take binary_cross_entropy_with_logits"
        )
    if kind == "CtcLoss" and axis not in (-1, len(shape) - 1):
        yield (
            f"ctc_loss takes the scores of classes from the last dimension of {[*shape]}, and they "
            f"are logarithms of shares along dimension {axis}: give it prediction.log_softmax(-1)"
        )
    if kind.startswith("Nll") and axis == 0 and len(shape) > 1:
        yield (
            f"nll_loss takes the scores of classes from dimension 1 of {[*shape]}, and they are "
            "logarithms of shares of the batch: give it prediction.log_softmax(1)"
        )


def _of_places(node: Any) -> Iterator[str]:
    """Scores whose classes were moved by a view, which moves no values."""
    made = node.next_functions[0]
    while _kind(made[0]) in SHAPES:
        view, made = made[0], made[0].next_functions[0]
        if _kind(view) not in VIEWS or made[0] is None:
            continue
        new, old = ((*e._input_metadata[n].shape,) for e, n in ((view, 0), made))
        last = _made_by(view, SHAPES)._input_metadata[0].shape[-1:]  # the classes of a layer
        is_swap = sorted(new) == sorted(old) and (*last,) == old[-1:] != new[-1:]
        is_swap = is_swap and [n for n in new if n > 1] != [n for n in old if n > 1]
        is_of_pixels = _kind(made[0]) == "Convolution" and len(old) > len(new) == 2
        if is_swap or (is_of_pixels and old[1] == new[1] and old[0] < new[0]):
            yield (
                f"the loss takes scores that a view has brought from {[*old]} to {[*new]}, which "
                "leaves the values in their order, and so mixes samples and classes: to exchange "
                "dimensions, write prediction.transpose(1, 2) or prediction.permute(...)"
            )


def _of_labels(kind: str, node: Any) -> Iterator[str]:
    """Labels between which a loss does not lie; it waits for the device, in the first step."""
    target = saved(node, "target")
    if not is_plain_tensor(target) or not target.numel():
        return
    low, high = (each.item() for each in target.aminmax())
    if kind == "SoftMarginLoss" and low == 0:
        yield f"soft_margin_loss takes labels of -1 and 1, and got labels from 0 to {high:g}"
    # Labels of 1.2 or -0.1, as for the discriminator of a GAN, are meant.
    if kind != "SoftMarginLoss" and (low < -0.5 or high > 1.5):
        yield (
            "binary_cross_entropy_with_logits takes labels from 0 to 1, and got numbers from "
            f"{low:g} to {high:g}: it has no least value then. Write labels of -1 and 1 as "
            "(target + 1) / 2, and bytes of an image as target / 255"
        )


def _of_divergence(node: Any) -> Iterator[str]:
    """`target * log(target) - target * prediction`, as torch's `kl_div` computes it."""
    (entropy, _), *others = node.next_functions
    if entropy is not None or not others or _kind(others[0][0]) != "Mul":
        return
    made = [each for each, _ in others[0][0].next_functions if each is not None]
    if len(made) == 1 and _through_shapes(made[0]) in ("Sigmoid", "Softmax"):
        yield (
            "kl_div takes logarithms of probabilities, and it got probabilities: give it "
            "prediction.log_softmax(1), and the target as probabilities"
        )


def _of_pairs(node: Any, kind: str, shape: tuple[int, ...], *, is_mean: bool) -> Iterator[str]:
    """An operation of each prediction with each target, where none of both says so."""
    inputs = [(_kind(e), (*e._input_metadata[n].shape,)) for e, n in node.next_functions if e]
    (made_by, own), *others = inputs
    row, column = shape[1:], (shape[0], 1, *shape[2:])
    is_row, is_column = own == row, own == column and made_by not in NEW_AXIS
    if others or made_by == "AccumulateGrad" or not (is_row or is_column):
        return
    target = column if is_row else row
    if kind in OF_KNOWN:  # a matrix on purpose, such as of who is at risk when, is no target
        factors = (saved(node, name) for name in ("self", "other", "condition"))
        is_meant = target not in [(*each.shape,) for each in factors if each is not None]
    else:  # the target is not known: a matrix that is reduced by rows is one on purpose
        is_meant = not is_mean
    if not is_meant:
        yield (
            f"the loss pairs each prediction with each target: predictions of shape {[*own]} and "
            f"targets of shape {[*target]} make values of shape {[*shape]}. Give both one shape, "
            "such as target.view_as(prediction). Where it is meant, say so: "
            f"prediction{'[None]' if is_row else '.squeeze(1)[:, None]'}"
        )


def _source(node: Any) -> str:
    """The kind of the operation that made the input of another one, whatever its shape is now."""
    return _through_shapes(node.next_functions[0][0])


def _through_shapes(source: Any) -> str:
    return _kind(source if _kind(source) not in SHAPES else _made_by(source, SHAPES))


def _made_by(node: Any, passed: set[str]) -> Any:
    """The operation behind this one, and behind operations of these kinds."""
    source = node.next_functions[0][0]
    while _kind(source) in passed:
        source = source.next_functions[0][0]
    return source


def _kind(node: Any) -> str:
    """The name of an operation; a function of the script, which has no number, has another."""
    kind, _, number = type(node).__name__.partition("Backward")
    return kind if number else type(node).__name__
