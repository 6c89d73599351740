"""Media and hyper-parameters as TensorBoard's summaries."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ..common.media import Histogram, Image, Medium, PRCurve, Text
from .hparams import flat
from .png import as_bytes, png


def summary_value(name: str, medium: Medium) -> Any:
    """One value of a summary, under a name.

    Raises:
        TypeError: A summary has no place for this kind.
    """
    summary: Any = import_module("tensorboardX.summary")
    if isinstance(medium, Image):
        height, width, channels = as_bytes(medium).shape
        image = summary.Summary.Image(
            height=height, width=width, colorspace=channels, encoded_image_string=png(medium)
        )
        return summary.Summary.Value(tag=name, image=image)
    if isinstance(medium, Text):
        made = summary.text(name, medium.text)
    elif isinstance(medium, Histogram):
        made = _histogram(summary, name, medium)
    elif isinstance(medium, PRCurve):
        made = summary.pr_curve(name, medium.targets.numpy(), medium.scores.double().numpy())
    else:
        raise TypeError(f"a {type(medium).__name__} is no summary")
    return made.value[0]


def hparams_summary(hparams: Mapping[str, Any]) -> Any:
    """Hyper-parameters as the beginning of a session, from which TensorBoard finds the metrics."""
    summary: Any = import_module("tensorboardX.summary")
    _, begun, _ = summary.hparams(flat(hparams), {})
    return begun


def _histogram(summary: Any, name: str, histogram: Histogram) -> Any:
    counts, edges = histogram.counts.double(), histogram.edges.double()
    middles = (edges[1:] + edges[:-1]) / 2
    return summary.histogram_raw(
        name,
        min=edges[0].item(),
        max=edges[-1].item(),
        num=counts.sum().item(),
        sum=(counts * middles).sum().item(),
        sum_squares=(counts * middles**2).sum().item(),
        # It takes the ends of the ranges, the first of which would begin at minus infinity.
        bucket_limits=edges.tolist(),
        bucket_counts=[0.0, *counts.tolist()],
    )
