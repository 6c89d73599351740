"""Media: values besides numbers that can be written into a run's metrics, and be shown.

They copy their tensors, so a later logger still shows the moment in which they were made, and a
checkpoint holds them like other metrics. The copies stay on their device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

from .plots import ConfusionMatrix, Curve, PRCurve, copied

if TYPE_CHECKING:
    from torch import Tensor


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
