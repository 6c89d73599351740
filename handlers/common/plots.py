"""Media that a report draws as charts: curves, precision over recall, and confusion matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

MOST_CLASSES = 200
"""Classes of a confusion matrix: more are read by nobody, and fill a file of rows."""


@dataclass(frozen=True, eq=False)
class PRCurve:
    """Precision over recall of a binary classification.

    Args:
        targets: 1 or True for a member of the class, 0 or False for others.
        scores: The predicted probability of the class, from 0 to 1, for each target.

    Raises:
        ValueError: Their shapes differ.
    """

    targets: Any
    scores: Any

    def __post_init__(self) -> None:
        targets, scores = copied(self.targets).flatten(), copied(self.scores).flatten()
        if targets.shape != scores.shape:
            raise ValueError(
                f"PRCurve got {len(targets)} targets and {len(scores)} scores; it needs a score "
                "for each target. Precision and recall that are computed already are a "
                'Curve(recall, precision, axes=("recall", "precision"))'
            )
        vars(self).update(targets=targets, scores=scores)

    @property
    def curve(self) -> Curve:
        """Precision over recall, at each score from the highest to the lowest.

        Without a member of the class, the recall is not a number.

        >>> PRCurve([1, 0, 1, 0], [0.9, 0.8, 0.4, 0.1]).curve.y
        tensor([[1.0000, 1.0000, 0.5000, 0.6667, 0.5000]], dtype=torch.float64)
        """
        import torch

        scores, order = self.scores.double().sort(descending=True, stable=True)
        found = (self.targets[order] > 0).double().cumsum(0)
        last = torch.ones_like(scores, dtype=torch.bool)  # of the equal scores
        last[:-1] = scores[1:] != scores[:-1]
        count = torch.arange(1, len(scores) + 1, dtype=torch.float64, device=scores.device)
        recall, precision = (found / found[-1:])[last], (found / count)[last]
        begins = recall.new_tensor([0.0]), recall.new_tensor([1.0])
        return Curve(
            torch.cat([begins[0], recall]),
            torch.cat([begins[1], precision]),
            axes=("recall", "precision"),
        )


@dataclass(frozen=True, eq=False)
class Curve:
    """One line or several in a plane, such as precision over recall, or a ROC curve.

    Args:
        x: The places of the points: of shape (points,), or (lines, points).
        y: Their heights, of the same shape.
        axes: What x and y are.
        labels: The name of each line; or None.

    Raises:
        ValueError: The shapes or the number of labels do not fit together.

    >>> import torch
    >>> from torchmetrics.functional.classification import binary_roc
    >>> scores, targets = torch.tensor([0.9, 0.4, 0.1]), torch.tensor([1, 1, 0])
    >>> false_positive, true_positive, thresholds = binary_roc(scores, targets)
    >>> Curve(false_positive, true_positive, axes=("false positives", "true positives")).x
    tensor([[0., 0., 0., 1.]])
    """

    x: Any
    y: Any
    axes: Sequence[str] = ("x", "y")
    labels: Sequence[str] | None = None

    def __post_init__(self) -> None:
        x, y = (each[None] if each.ndim == 1 else each for each in map(copied, (self.x, self.y)))
        if x.ndim != 2 or x.shape != y.shape or len(self.axes) != 2:
            raise ValueError(
                f"Curve got x of shape {tuple(x.shape)} and y of shape {tuple(y.shape)}, and "
                f"axes={self.axes!r}; it needs two of one shape, (points,) or (lines, points), "
                "and two axes"
            )
        labels = _names(self.labels, len(x), "Curve", "line")
        vars(self).update(x=x, y=y, axes=list(map(str, self.axes)), labels=labels)


@dataclass(frozen=True, eq=False)
class ConfusionMatrix:
    """How often each class was predicted as each class.

    Args:
        matrix: A row for each true class, a column for each prediction, as torchmetrics computes
            it: counts, or fractions.
        labels: The name of each class; by default its number.

    Raises:
        ValueError: The matrix is not square, is too large, or the number of labels is another.

    >>> ConfusionMatrix([[5, 1], [0, 4]], labels=["cat", "dog"]).labels
    ['cat', 'dog']
    """

    matrix: Any
    labels: Sequence[str] | None = None

    def __post_init__(self) -> None:
        matrix = copied(self.matrix)
        if matrix.ndim != 2 or not 0 < len(matrix) == matrix.shape[1] <= MOST_CLASSES:
            raise ValueError(
                f"ConfusionMatrix got a matrix of shape {tuple(matrix.shape)}; it needs a row and "
                f"a column for each class, and at most {MOST_CLASSES} classes"
            )
        labels = _names(self.labels, len(matrix), "ConfusionMatrix", "class")
        vars(self).update(matrix=matrix, labels=labels)


def copied(values: Any) -> Tensor:
    """The values as a tensor of their own, without a graph, where they are."""
    import torch

    return torch.as_tensor(values).detach().clone()


def _names(labels: Sequence[str] | None, count: int, kind: str, of: str) -> list[str] | None:
    if labels is None:
        return None
    names = [str(each) for each in labels]
    if len(names) != count:
        raise ValueError(f"{kind} got {len(names)} labels; it needs {count}, one for each {of}")
    return names
