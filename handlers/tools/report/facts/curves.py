"""What a chart draws of a metric: a curve of few points that keeps every peak, or a heat map."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, groupby, repeat
from operator import itemgetter, mul
from typing import Any, NamedTuple, TypeVar

from .journal_lines import Thinned

Item = TypeVar("Item")

MOST_POINTS = 2000
"""Points of a curve: about two for each pixel of a wide chart."""
MOST_MARKS = 200
"""Marks of a chart for values that are not finite."""
RANGES = 40
"""Rows of a heat map."""
MOST_COLUMNS = 60
"""Columns of a heat map: histograms of the metric, spread over the run."""


@dataclass(frozen=True)
class HistogramRow:
    """A row's histogram: how many values are in each range."""

    iteration: int
    counts: list[float]
    edges: list[float]
    """One more than counts, in growing order."""


class Mean(NamedTuple):
    """The mean of the finite values that follow one another from a place on."""

    place: int
    number: int
    value: float
    iterations: int
    """Their sum."""


class Series:
    """Of the values of one metric those that a curve needs, in the order of the rows.

    More than `most` are divided into groups of 5, of 10, of 20, and so on, and at most `most / 4`
    of them. Of each group the curve keeps the first, the lowest, the highest and the last value, so
    no peak is lost; the means of the groups serve for smoothing. A value that is not finite
    interrupts the curve and is marked.
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
        self.iterations: array[int] = array("q")
        self.epochs: array[int] = array("q")
        self.values: array[float] = array("d")
        self._places = array("q")
        """Where each of these is among all values."""
        self._most, self._size, self._count = most, 1, 0
        self._means: list[Mean] = []
        self._averaged = 0
        """How many of what is kept the means have."""
        self._odd = Thinned[int](MOST_MARKS)
        self._newest: tuple[int, int, float] | None = None

    def add(self, iteration: int, epoch: int, value: float) -> None:
        """Add the newest value."""
        self.iterations.append(iteration)
        self.epochs.append(epoch)
        self.values.append(value)
        self._places.append(self._count)
        self._count += 1
        self._newest = iteration, epoch, value
        if not math.isfinite(value):
            self._odd.add(iteration)
        if len(self.values) > 3 * self._most:
            self._thin()

    def curve(self) -> dict[str, Any]:
        """The points to draw, and the extremes, the earlier of equal ones; ready for JSON."""
        self._thin()
        points = [*zip(self.iterations, self.epochs, self.values, strict=True)]
        finite = [point for point in points if math.isfinite(point[2])]
        lowest = min(finite, key=itemgetter(2), default=None)
        highest = max(finite, key=itemgetter(2), default=None)
        curve: dict[str, Any] = {
            "count": self._count,
            "x": [*self.iterations],
            "y": [value if math.isfinite(value) else None for value in self.values],
            "odd": {"count": self._odd.seen, "x": [*self._odd]},
            "last": _row(self._newest),
            "lowest": _row(lowest),
            "highest": _row(highest),
        }
        if self._size > 1:
            curve["means"] = {
                "x": [mean.iterations // mean.number for mean in self._means],
                "y": [mean.value for mean in self._means],
                "n": [mean.number for mean in self._means],
            }
        return curve

    def _thin(self) -> None:
        """Keep of each group what a curve draws; what was left out before changes nothing."""
        while self._count > max(self._most, self._most // 4 * self._size):
            self._size *= 2 if self._size > 1 else 5
        if self._size == 1:
            return
        for group in self._groups(self._averaged):
            if new := _finite(group, self.values):
                value = _mean([self.values[at] for at in new], repeat(1 / len(new)))
                iterations = sum([self.iterations[at] for at in new])
                self._means.append(Mean(self._places[new[0]], len(new), value, iterations))
        means = groupby(self._means, lambda mean: mean.place // self._size)
        self._means = [_merged([*group]) for _, group in means]
        kept = [at for group in self._groups(0) for at in _kept(group, self.values)]
        arrays: list[array[Any]] = [self._places, self.iterations, self.epochs, self.values]
        for each in arrays:
            each[:] = array(each.typecode, [each[at] for at in kept])
        self._averaged = len(kept)

    def _groups(self, begin: int) -> Iterator[range]:
        """Where the values of each group are, from one of these places on."""
        while begin < len(self._places):
            after = (self._places[begin] // self._size + 1) * self._size
            end = bisect_left(self._places, after, begin)
            yield range(begin, end)
            begin = end


def _finite(group: range, values: Sequence[float]) -> list[int]:
    """The places of the group whose values are finite."""
    return [*compress(group, map(math.isfinite, values[group.start : group.stop]))]


def _kept(group: range, values: Sequence[float]) -> list[int]:
    """The places of a group that a curve keeps, and the first of the values that are not finite."""
    finite, chosen = _finite(group, values), set[int]()
    if len(finite) < len(group):
        chosen.add(next(at for at in group if not math.isfinite(values[at])))
    if finite:
        chosen |= {finite[0], finite[-1]}
        chosen |= {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)}
    return sorted(chosen)


def _merged(means: Sequence[Mean]) -> Mean:
    """The mean of the values of them all."""
    number = sum(mean.number for mean in means)
    value = _mean([mean.value for mean in means], [mean.number / number for mean in means])
    return Mean(means[0].place, number, value, sum(mean.iterations for mean in means))


def _mean(values: Sequence[float], shares: Iterable[float]) -> float:
    """The mean of finite values, each with a share in it; their sum may be infinite."""
    mean: float = sum(map(mul, values, shares))
    return min(max(mean, min(values)), max(values))


def _row(point: tuple[int, int, float] | None) -> dict[str, Any] | None:
    """A row of the metric: its value, as text if JSON has no number for it, and where it was."""
    if point is None:
        return None
    iteration, epoch, value = point
    shown = value if math.isfinite(value) else str(value)
    return {"value": shown, "iteration": iteration, "epoch": epoch}


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
