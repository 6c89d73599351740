"""A curve with few enough points to draw, which keeps what an eye looks for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .rows import Series

MOST = 2000
"""Points of a curve: about two for each pixel of a wide chart."""
MARKS = 200


class Part(NamedTuple):
    """Neighbouring points, by their places, of which at most five are drawn."""

    first: int
    end: int


def curve(series: Series, most: int = MOST) -> dict[str, Any]:
    """What is drawn of a metric, and what is said of it, ready for JSON.

    Where there are more than `most` points they are taken in equal groups, and of each group are
    kept the first, the lowest, the highest and the last; so no peak is lost. For smoothing there
    are the means of the groups. What is no number breaks the curve and is marked.
    """
    values = series.values
    count = len(values)
    size = max(1, -(-count // (most // 4))) if count > most else 1
    parts = [Part(first, min(first + size, count)) for first in range(0, count, size)]
    kept = range(count) if size == 1 else [place for part in parts for place in _kept(part, values)]
    odd = [place for place, value in enumerate(values) if not math.isfinite(value)]
    drawn: dict[str, Any] = {
        "count": count,
        "x": [series.iterations[place] for place in kept],
        "y": [_or_none(values[place]) for place in kept],
        "odd": {
            "count": len(odd),
            "x": [series.iterations[place] for place in odd[:: -(-len(odd) // MARKS) or 1]],
        },
        "last": _point(series, count - 1) if count else None,
    } | _extremes(series)
    if size > 1:
        drawn["means"] = _means(series, parts)
    return drawn


def _kept(part: Part, values: Sequence[float]) -> Iterator[int]:
    finite = [place for place in range(*part) if math.isfinite(values[place])]
    gap = next((place for place in range(*part) if not math.isfinite(values[place])), None)
    chosen = set() if gap is None else {gap}
    if finite:
        chosen |= {finite[0], finite[-1]}
        chosen |= {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)}
    yield from sorted(chosen)


def _means(series: Series, parts: Sequence[Part]) -> dict[str, list[float]]:
    """The mean of the numbers of each group, where it lies, and of how many it is."""
    means: dict[str, list[float]] = {"x": [], "y": [], "n": []}
    for part in parts:
        places = [place for place in range(*part) if math.isfinite(series.values[place])]
        values = [series.values[place] for place in places]
        if values:
            mean = sum(value / len(values) for value in values)  # their sum may be infinite
            means["x"].append(series.iterations[places[len(places) // 2]])
            means["y"].append(min(max(mean, min(values)), max(values)))
            means["n"].append(len(values))
    return means


def _extremes(series: Series) -> dict[str, Any]:
    """The lowest and the highest number; of equal ones the earlier."""
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


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
