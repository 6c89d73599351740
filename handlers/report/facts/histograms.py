"""The histograms of a metric over a run, in ranges that all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .rows import Histogram

RANGES = 40
COLUMNS = 60
"""Histograms of a metric that a page shows, spread over the run."""


def heatmap_of(histograms: Sequence[Histogram], count: int | None = None) -> dict[str, Any]:
    """Iterations, the middles of the ranges, and the share of the values in each, for JSON.

    A range that holds a part of a histogram's own range gets the same part of its values.

    Args:
        histograms: The histograms, or some of them.
        count: How many there are; by default those given.
    """
    last = len(histograms) - 1
    places = sorted({round(place * last / (COLUMNS - 1)) for place in range(COLUMNS)})
    chosen = histograms if last < COLUMNS else [histograms[place] for place in places]
    low = min(each.edges[0] for each in chosen)
    high = max(each.edges[-1] for each in chosen)
    width = (high - low) / RANGES or 1.0
    shares = [_shares(each, low, width) for each in chosen]
    return {
        "x": [each.iteration for each in chosen],
        "y": [low + (place + 0.5) * width for place in range(RANGES)],
        "z": [[round(column[place], 5) for column in shares] for place in range(RANGES)],
        "count": len(histograms) if count is None else count,
    }


def _shares(histogram: Histogram, low: float, width: float) -> list[float]:
    shares = [0.0] * RANGES
    total = sum(histogram.counts) or 1.0
    edges = [(edge - low) / width for edge in histogram.edges]  # in ranges
    for count, begin, end in zip(histogram.counts, edges, edges[1:], strict=False):
        first = min(int(begin), RANGES - 1)
        for place in range(first, min(int(end), RANGES - 1) + 1):
            part = min(end, place + 1) - max(begin, place)
            inside = part / (end - begin) if end > begin else float(place == first)
            shares[place] += max(0.0, inside) * count / total
    return shares
