"""What a chart draws of a metric: a curve of few points that keeps every peak, or a heat map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from .metric_files import HistogramRow, Series

Item = TypeVar("Item")

MOST_POINTS = 2000
"""Points of a curve: about two for each pixel of a wide chart."""
MOST_MARKS = 200
"""Marks of a chart for values that are not finite."""
RANGES = 40
"""Rows of a heat map."""
MOST_COLUMNS = 60
"""Columns of a heat map: histograms of the metric, spread over the run."""


def curve_of(series: Series, most: int = MOST_POINTS) -> dict[str, Any]:
    """The points to draw of a metric, and its extremes, ready for JSON.

    More than `most` points are divided into equal groups. Of each group the curve keeps the first,
    the lowest, the highest and the last point, so no peak is lost; the means of the groups serve
    for smoothing. A value that is not finite interrupts the curve and is marked.
    """
    values, iterations = series.values, series.iterations
    count = len(values)
    size = max(1, -(-count // (most // 4))) if count > most else 1
    groups = [range(first, min(first + size, count)) for first in range(0, count, size)]
    kept = [place for group in groups for place in _kept(group, values)]
    odd = [place for place, value in enumerate(values) if not math.isfinite(value)]
    curve: dict[str, Any] = {
        "count": count,
        "x": [iterations[place] for place in kept],
        "y": [values[place] if math.isfinite(values[place]) else None for place in kept],
        "odd": {
            "count": len(odd),
            "x": [iterations[place] for place in odd[:: -(-len(odd) // MOST_MARKS) or 1]],
        },
        "last": _point(series, count - 1) if count else None,
    } | _extremes(series)
    if size > 1:
        curve["means"] = _means(series, groups)
    return curve


def _kept(group: range, values: Sequence[float]) -> Sequence[int]:
    """The places of a group that a curve keeps, and the first of the values that are not finite."""
    if len(group) == 1:
        return group
    finite = [place for place in group if math.isfinite(values[place])]
    chosen = set([place for place in group if not math.isfinite(values[place])][:1])
    if finite:
        chosen |= {finite[0], finite[-1]}
        chosen |= {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)}
    return sorted(chosen)


def _means(series: Series, groups: Sequence[range]) -> dict[str, list[float]]:
    """The mean of the finite values of each group, its iteration, and the number of values."""
    means: dict[str, list[float]] = {"x": [], "y": [], "n": []}
    for group in groups:
        places = [place for place in group if math.isfinite(series.values[place])]
        values = [series.values[place] for place in places]
        if values:
            mean = sum(value / len(values) for value in values)  # their sum may be infinite
            means["x"].append(series.iterations[places[len(places) // 2]])
            means["y"].append(min(max(mean, min(values)), max(values)))
            means["n"].append(len(values))
    return means


def _extremes(series: Series) -> dict[str, Any]:
    """The lowest and the highest finite value; the earlier of equal values."""
    values = series.values
    finite = [place for place, value in enumerate(values) if math.isfinite(value)]
    if not finite:
        return {"lowest": None, "highest": None}
    lowest, highest = min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)
    return {"lowest": _point(series, lowest), "highest": _point(series, highest)}


def _point(series: Series, place: int) -> dict[str, Any]:
    """A row of the metric: its value, as text if JSON has no number for it, and where it was."""
    value = series.values[place]
    return {
        "value": value if math.isfinite(value) else str(value),
        "iteration": series.iterations[place],
        "epoch": series.epochs[place],
    }


def heatmap_of(histograms: Sequence[HistogramRow], count: int | None = None) -> dict[str, Any]:
    """Iterations, the middles of the ranges, and the fraction of the values in each, for JSON.

    A range that covers a fraction of a histogram's own range gets this fraction of its values.
    """
    chosen = spread(histograms, MOST_COLUMNS)
    low = min(each.edges[0] for each in chosen)
    high = max(each.edges[-1] for each in chosen)
    width = (high - low) / RANGES or 1.0
    fractions = [_fractions(each, low, width) for each in chosen]
    return {
        "x": [each.iteration for each in chosen],
        "y": [low + (place + 0.5) * width for place in range(RANGES)],
        "z": [[round(column[place], 5) for column in fractions] for place in range(RANGES)],
        "count": len(histograms) if count is None else count,
    }


def _fractions(histogram: HistogramRow, low: float, width: float) -> list[float]:
    """The fraction of the values in each of the ranges, which begin at `low`."""
    fractions = [0.0] * RANGES
    total = sum(histogram.counts) or 1.0
    edges = [(edge - low) / width for edge in histogram.edges]  # in ranges
    for count, begin, end in zip(histogram.counts, edges, edges[1:], strict=False):
        first = min(int(begin), RANGES - 1)
        for place in range(first, min(int(end), RANGES - 1) + 1):
            overlap = min(end, place + 1) - max(begin, place)
            inside = overlap / (end - begin) if end > begin else float(place == first)
            fractions[place] += max(0.0, inside) * count / total
    return fractions


def spread(items: Sequence[Item], most: int) -> Sequence[Item]:
    """At most so many of them, at even distances, with the first and the last.

    >>> spread(range(100), 4)
    [0, 33, 66, 99]
    """
    last = len(items) - 1
    return items if last < most else [items[round(at * last / (most - 1))] for at in range(most)]
