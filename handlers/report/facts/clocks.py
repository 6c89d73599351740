"""The clocks of a run at its iterations, so that a page can draw a curve over any of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise

from .parts import Part

MOST = 500
"""Iterations of a run at which a page knows its clocks; it interpolates between them."""


def clocks_of(
    rows: Mapping[int, tuple[int, int]], found: Sequence[Part], epoch_length: float
) -> dict[str, list[float]]:
    """Step, epochs and seconds at work by iteration, from the rows and the journal.

    Epochs are fractions: the iterations over `epoch_length`, or, if it is 0, each epoch ends at its
    last iteration that is known. Time is left out if the journal does not tell it.
    """
    known = {0: (0, 0)} | {
        int(line["iteration"]): (int(line["step"]), int(line["epoch"]))
        for part in found
        for line in part.lines
    }
    known |= dict(rows)
    every = sorted(known)
    iterations = [*every[: -1 : -(-len(every) // MOST)], every[-1]]
    ends = {known[each][1]: each for each in every}  # epoch by epoch, the last iteration known
    told = sorted((float(at), float(epoch)) for epoch, at in ends.items())
    clocks = {
        "iteration": list(map(float, iterations)),
        "step": [float(known[each][0]) for each in iterations],
        "epoch": [
            round(each / epoch_length if epoch_length else _at(told, each), 4)
            for each in iterations
        ],
    }
    if work := work_time(found):
        clocks["time"] = [round(_at(work, each), 2) for each in iterations]
    return clocks


def work_time(found: Sequence[Part]) -> list[tuple[float, float]]:
    """Pairs of an iteration and the seconds that a process was at work until it.

    Pauses do not count. Iterations that a later part repeated count twice, as time that was spent.
    """
    told: list[tuple[float, float]] = []
    before = 0.0
    for part in found:
        while told and told[-1][0] > part.first["iteration"]:
            told.pop()
        told += [
            (line["iteration"], before + max(0.0, line["time"] - part.first["time"]))
            for line in part.lines
        ]
        before += part.seconds
    return told if any(one[0] < other[0] for one, other in pairwise(told)) else []


def _at(told: Sequence[tuple[float, float]], iteration: float) -> float:
    """The value at an iteration, on the line between the two that are nearest."""
    place = bisect_left(told, iteration, key=lambda pair: pair[0])
    if place == len(told):
        return told[-1][1]
    at, value = told[place]
    if at == iteration or place == 0:
        return value
    before, first = told[place - 1]
    return first + (value - first) * (iteration - before) / (at - before)
