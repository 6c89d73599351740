"""The curve of a learning-rate range test, and the rates that it suggests."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from io import StringIO
from itertools import pairwise
from typing import Any

SMOOTHING = 0.9
"""The weight of the past in the smoothed loss; 0.98, as in fastai, lags by half of 100 steps."""


@dataclass(frozen=True)
class LRCurve:
    """The loss at each learning rate of a range test, made by `find_lr`.

    >>> curve = LRCurve(rates=[1e-3, 1e-2, 1e-1], losses=[2.0, 1.0, 3.0], diverged=True)
    >>> curve.rows[1]["lr"], curve.rows[1]["loss"]
    (0.01, 1.0)
    """

    rates: list[float]
    """The learning rate of each step; the largest one if there are several groups."""
    losses: list[float]
    """The loss of each step, before the step."""
    diverged: bool
    """True if the test ended because the loss grew, False if it came to the largest rate."""

    @cached_property
    def smoothed(self) -> list[float]:
        """The exponential mean of the losses up to each step."""
        return smoothed(self.losses)

    @property
    def rows(self) -> list[dict[str, float]]:
        """The curve as rows, for a table or a data frame: `lr`, `loss`, `smoothed`."""
        columns = zip(self.rates, self.losses, self.smoothed, strict=True)
        return [{"lr": r, "loss": loss, "smoothed": s} for r, loss, s in columns]

    @property
    def suggestion(self) -> float:
        """The rate in the middle of the longest fall of the smoothed loss, a careful choice.

        The longest fall is the longest sequence of steps, not necessarily next to each other, at
        which the loss is smaller each time: the "valley" of fastai's learning-rate finder.

        Raises:
            ValueError: The loss did not fall.
        """
        rates, losses = self._judged()
        fall = _longest_fall(losses)
        return rates[fall[len(fall) // 2]]

    @property
    def steepest(self) -> float:
        """The rate at which the smoothed loss falls fastest, mostly larger than `suggestion`.

        Raises:
            ValueError: The loss did not fall.
        """
        rates, losses = self._judged()
        slopes = [
            (after - loss) / math.log(larger / rate)
            for (rate, loss), (larger, after) in pairwise(zip(rates, losses, strict=True))
        ]
        return rates[slopes.index(min(slopes))]

    def figure(self) -> Any:
        """The curve as a figure of matplotlib: `curve.figure().savefig("lr.png")`.

        Raises:
            ImportError: matplotlib is not installed.
        """
        try:
            matplotlib = import_module("matplotlib.figure")
        except ImportError as error:
            raise ImportError(
                'LRCurve.figure() draws by matplotlib: pip install "camshaft[figures]"'
            ) from error
        figure = matplotlib.Figure(figsize=(7, 4), layout="tight")
        axes = figure.subplots()
        axes.plot(self.rates, self.losses, color="0.75", label="loss")
        axes.plot(self.rates, self.smoothed, label="smoothed")
        with suppress(ValueError):
            axes.axvline(self.suggestion, ls="--", color="C1", label=f"{self.suggestion:.2g}")
        axes.set(xscale="log", xlabel="learning rate", ylabel="loss")
        least, first = min(self.losses), max(self.smoothed[: len(self.rates) // 10 + 1])
        margin = 0.1 * abs(first - least)  # the loss at the largest rates would flatten the rest
        axes.set_ylim(least - margin, max(first, least) + margin)
        axes.legend()
        return figure

    def _repr_svg_(self) -> str | None:
        """The curve in a notebook, where matplotlib is installed."""
        picture = StringIO()
        with suppress(ImportError):
            self.figure().savefig(picture, format="svg")
        return picture.getvalue() or None

    def _judged(self) -> tuple[list[float], list[float]]:
        """Rates and smoothed losses without the first tenth, where few losses make the mean."""
        first = len(self.rates) // 10
        rates, losses = self.rates[first:], self.smoothed[first:]
        if len(losses) < 2 or min(losses) == losses[0]:
            raise ValueError(
                f"the loss did not fall in {len(self.rates)} steps at learning rates from "
                f"{self.rates[0]:.2g} to {self.rates[-1]:.2g}, so no rate can be suggested; look "
                "at the curve, and try a smaller start=, more steps=, or another model"
            )
        return rates, losses


def smoothed(losses: list[float]) -> list[float]:
    """The exponential mean of the values up to each, corrected for its beginning, as in Adam.

    >>> smoothed([2.0, 2.0, 2.0])
    [2.0, 2.0, 2.0]
    """
    mean, means = 0.0, list[float]()
    for number, loss in enumerate(losses, 1):
        mean = SMOOTHING * mean + (1 - SMOOTHING) * loss
        means.append(mean / (1 - SMOOTHING**number))
    return means


def _longest_fall(losses: list[float]) -> list[int]:
    """The indices of the longest strictly decreasing subsequence of losses.

    >>> _longest_fall([5.0, 6.0, 4.0, 4.5, 3.0])
    [0, 2, 4]
    """
    best: list[list[int]] = []
    for place, loss in enumerate(losses):
        before = (fall for fall in best if losses[fall[-1]] > loss)
        best.append([*max(before, key=len, default=[]), place])
    return max(best, key=len)
