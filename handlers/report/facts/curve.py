"""A curve with few enough points to draw, which keeps every peak."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .rows import Series

MOST = 2000
"""Points of a curve: about two for each pixel of a wide chart."""
MARKS = 200
"""Marks of a chart for values that are not finite."""


def curve_of(series: Series, most: int = MOST) -> dict[str, Any]:
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
    drawn: dict[str, Any] = {
        "count": count,
        "x": [iterations[place] for place in kept],
        "y": [values[place] if math.isfinite(values[place]) else None for place in kept],
        "odd": {
            "count": len(odd),
            "x": [iterations[place] for place in odd[:: -(-len(odd) // MARKS) or 1]],
        },
        "last": _point(series, count - 1) if count else None,
    } | _extremes(series)
    if size > 1:
        drawn["means"] = _means(series, groups)
    return drawn


def _kept(group: range, values: Sequence[float]) -> Sequence[int]:
    if len(group) == 1:
        return group
    finite = [place for place in group if math.isfinite(values[place])]
    chosen = {place for place in group if not math.isfinite(values[place])}
    chosen = {min(chosen)} if chosen else set()
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
    value = series.values[place]
    return {
        "value": value if math.isfinite(value) else str(value),
        "iteration": series.iterations[place],
        "epoch": series.epochs[place],
    }
