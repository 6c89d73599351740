"""Comparisons with the raw loop, and what is typical of many turns."""

from collections.abc import Callable
from statistics import median, quantiles

Figures = dict[str, float]
Turns = list[dict[str, Figures]]
Measure = Callable[[Figures, Figures], float]
"""Makes a number of a subject's figures and the raw loop's of the same turn."""

RAW = "raw_loop"


def own(key: str) -> Measure:
    """A figure as it was measured."""
    return lambda own, raw: own[key]


def ratio(key: str) -> Measure:
    """A figure in comparison with the raw loop's of the same turn."""
    return lambda own, raw: own[key] / raw[key]


def without_loading(own: Figures, raw: Figures) -> float:
    """A step in comparison, less what the raw loop needs to load a batch of a data set of its own.

    There every subject has to load as it does.
    """
    return (own["pairs"] - raw["loading"]) / (raw["pairs"] - raw["loading"])


def each(count: int, kind: str) -> Measure:
    """What one of `count` handlers adds to an iteration without handlers."""
    return lambda own, raw: (own[f"{count} {kind}"] - own["0 firing"]) / count


def values(turns: Turns, subject: str, of: Measure) -> list[float]:
    """What each turn says."""
    return [of(figures[subject], figures[RAW]) for figures in turns]


def typical(turns: Turns, subject: str, of: Measure) -> float:
    """The median over the turns."""
    return median(values(turns, subject, of))


def spread(turns: Turns, subject: str, of: Measure) -> str:
    """The median over the turns, and between what the middle half of them lies."""
    if subject == RAW:
        return "1"
    low, middle, high = quantiles(values(turns, subject, of), n=4, method="inclusive")
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"
