"""Media: values besides numbers that can be written into a run's metrics, and be shown.

They copy their tensors, so a later logger still shows the moment in which they were made, and a
checkpoint holds them like other metrics. The copies stay on their device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from torch import Tensor

MOST_CLASSES = 200
"""Classes of a confusion matrix: more are read by nobody, and fill a file of rows."""


@dataclass(frozen=True, eq=False)
class Text:
    """Words, as Markdown.

    >>> from camshaft import Engine
    >>> def train_step(state, batch):
    ...     state.metrics["sample"] = Text(f"*{batch}*")
    >>> Engine(train_step).run(["one", "two"], max_epochs=1).metrics["sample"]
    Text(text='*two*')
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"Text({self.text!r}): needs a str")


@dataclass(frozen=True, eq=False)
class Image:
    """A picture, or several of one size as a grid.

    Args:
        pixels: Of shape (height, width), (channels, height, width), or (number, channels, height,
            width) for a grid; with 1, 3 or 4 channels; uint8, or floats from 0 to 1.
        caption: What it shows; some loggers show it too.

    Raises:
        ValueError: The shape is a different one.

    >>> import torch
    >>> Image(torch.rand(6, 1, 8, 8)).pixels.shape
    torch.Size([1, 16, 24])
    """

    pixels: Any
    caption: str = ""

    def __post_init__(self) -> None:
        pixels = copied(self.pixels)
        if pixels.ndim == 2:
            pixels = pixels[None]
        if pixels.ndim not in (3, 4) or pixels.shape[-3] not in (1, 3, 4) or not pixels.numel():
            raise ValueError(
                f"Image got pixels of shape {tuple(pixels.shape)}; it needs (height, width), "
                "(channels, height, width) or (number, channels, height, width) with 1, 3 or 4 "
                "channels; for pixels with their channels last: pixels.permute(2, 0, 1)"
            )
        object.__setattr__(self, "pixels", pixels if pixels.ndim == 3 else grid(pixels))


@dataclass(frozen=True, eq=False)
class Histogram:
    """How many values are in each range.

    Args:
        counts: How many values each range has.
        edges: Where the ranges begin and end: one number more than counts.

    Raises:
        TypeError: There are no edges, as if the counts were values.
        ValueError: The shapes do not fit together.

    >>> import torch
    >>> Histogram.of(torch.tensor([1.0, 2.0, 2.0, 5.0]), bins=2).counts
    tensor([3, 1])
    """

    counts: Any
    edges: Any = None

    def __post_init__(self) -> None:
        if self.edges is None:
            raise TypeError(
                "Histogram(...) got no edges: it needs counts and the edges of their ranges. "
                "Histogram.of(values) counts values"
            )
        counts, edges = copied(self.counts), copied(self.edges)
        if counts.ndim != 1 or edges.shape != (len(counts) + 1,) or not len(counts):
            raise ValueError(
                f"Histogram got counts of shape {tuple(counts.shape)} and edges of shape "
                f"{tuple(edges.shape)}; it needs (n,) and (n + 1,). Histogram.of(values) "
                "counts values"
            )
        vars(self).update(counts=counts, edges=edges)

    @classmethod
    def of(cls, values: Any, bins: int = 64) -> Self:
        """Count the finite values of a tensor in `bins` ranges of equal width, on its device.

        The host does not wait for the device. Without any finite value, all counts are 0.
        """
        import torch

        values = torch.as_tensor(values).detach().flatten()
        values = values.to(torch.promote_types(values.dtype, torch.float32))
        finite = values.isfinite()
        padded = torch.cat([values, values.new_zeros(1)])  # amin and amax need a value
        known = torch.cat([finite, ~finite.any()[None]])
        low = padded.masked_fill(~known, math.inf).amin()
        high = padded.masked_fill(~known, -math.inf).amax()
        width = (high - low) / bins
        width = width.where(width > 0, 1.0)  # all values may be equal
        place = ((values - low) / width).nan_to_num(0, bins - 1, 0).clamp(0, bins - 1).long()
        counts = torch.zeros(bins, dtype=torch.int64, device=values.device)
        counts.scatter_add_(0, place, finite.long())
        steps = torch.arange(bins + 1, dtype=values.dtype, device=values.device)
        edges = low + steps * width
        edges[-1] = edges[-1].maximum(high)  # rounding may have left the last edge below
        return cls(counts, edges)


@dataclass(frozen=True, eq=False)
class Embedding:
    """Points in a space of many dimensions, to be shown by a projection.

    Args:
        vectors: Of shape (points, dimensions).
        labels: The name of each point; or None.
        images: Of shape (points, channels, height, width), a picture of each point; or None.

    Raises:
        ValueError: The numbers of points, labels and images differ.
    """

    vectors: Any
    labels: Sequence[Any] | None = None
    images: Any = None

    def __post_init__(self) -> None:
        vectors = copied(self.vectors)
        images = None if self.images is None else copied(self.images)
        labels = self.labels
        if labels is not None:
            labels = [str(each.item() if hasattr(each, "item") else each) for each in labels]
        given = {"labels": labels, "images": images}
        if vectors.ndim != 2 or any(
            each is not None and len(each) != len(vectors) for each in given.values()
        ):
            found = {name: len(each) for name, each in given.items() if each is not None}
            raise ValueError(
                f"Embedding got vectors of shape {tuple(vectors.shape)} and {found}; it needs "
                "vectors of shape (points, dimensions), and a label and an image each, or none"
            )
        vars(self).update(vectors=vectors, labels=labels, images=images)


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


Medium = Text | Image | Histogram | PRCurve | Curve | ConfusionMatrix | Embedding
"""A value that a logger may show besides numbers."""

KINDS: dict[str, type[Medium]] = {
    kind.__name__: kind
    for kind in (Text, Image, Histogram, PRCurve, Curve, ConfusionMatrix, Embedding)
}


def content(medium: Medium) -> dict[str, Any]:
    """The arguments of a medium by their names."""
    return {item.name: getattr(medium, item.name) for item in fields(medium)}


def on_host(medium: Medium) -> Medium:
    """The same medium with its tensors in the host's memory."""
    tensors = {name: each.cpu() for name, each in content(medium).items() if hasattr(each, "cpu")}
    return replace(medium, **tensors) if tensors else medium


def grid(pixels: Tensor) -> Tensor:
    """Pictures (number, channels, height, width) side by side in one, about square."""
    number, channels, height, width = pixels.shape
    columns = math.ceil(math.sqrt(number))
    rows = math.ceil(number / columns)
    filled = pixels.new_zeros(rows * columns, channels, height, width)
    filled[:number] = pixels
    lines = filled.reshape(rows, columns, channels, height, width).permute(2, 0, 3, 1, 4)
    return lines.reshape(channels, rows * height, columns * width)


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
