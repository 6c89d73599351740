"""Which metrics share a chart, and under which heading the chart stands."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import attrgetter

from .facts import PACE
from .text import ascii_key

TRAINING = ("train", "training")
EVALUATION = ("val", "valid", "validation", "eval", "evaluation", "test")
LEARNING, RATE_AND_PACE, MORE = HEADINGS = ("Learning", "Rate and throughput", "More metrics")
TRAINING_SPLIT = "training"
SHARED_PREFIX = 3
"""So many charts with one prefix, such as `grad_norm`, have a heading of their own."""
FEW = 4
"""Up to so many charts share one heading; the charts of the learning do not count."""
RATE = re.compile(r"(^|/|_)(lr|learning_rate)($|/|_|-|\d)")
RESOURCES = re.compile(
    r"(per.second|_seconds$|seconds/|throughput|memory|mfu|utili[sz]ation|_time$|^time/|gpu|cpu|/s$)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Chart:
    """Metrics that are drawn over one another."""

    title: str
    heading: str
    metrics: list[str]
    """Training metrics first."""
    validated: list[str]
    """The metrics that were measured by an evaluation."""

    def split_of(self, name: str) -> str:
        """The data that a metric was measured on; empty if the chart has no evaluation."""
        if name in self.validated:
            return _prefix_and_rest(name)[0]
        return TRAINING_SPLIT if self.validated else ""

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each metric among the metrics of its split."""
        counts = Counter[str]()
        found: dict[str, int] = {}
        for name in self.metrics:
            split = self.split_of(name)
            found[name] = counts[split]
            counts[split] += 1
        return found

    @property
    def key(self) -> str:
        """Names the chart in the page; no title of a chart equals another key."""
        return f"curve {ascii_key(self.title)}"

    @property
    def is_smoothed(self) -> bool:
        """False for a learning rate and for the pace, which have no noise to remove."""
        return not RATE.search(self.title) and self.title != PACE


def charts_of(names: Iterable[str]) -> list[Chart]:
    """The charts for metrics of these names: training and evaluation of one metric share a chart.

    A metric `val/loss` shares a chart with `loss` or `train/loss`. Any other prefix counts as an
    evaluation if one of its metrics also exists without the prefix.

    >>> [(chart.title, chart.metrics) for chart in charts_of(["lr", "loss", "val/loss"])]
    [('loss', ['loss', 'val/loss']), ('lr', ['lr'])]
    """
    known = list(dict.fromkeys(names))
    prefixes = {_prefix_and_rest(name)[0] for name in known if _prefix_and_rest(name)[1] in known}
    evaluations = (prefixes | set(EVALUATION)) - {"", *TRAINING}
    grouped: dict[str, list[str]] = {}
    for name in known:
        prefix, last = _prefix_and_rest(name)
        is_split = prefix in evaluations or prefix in TRAINING
        grouped.setdefault(last if is_split else name, []).append(name)
    families = Counter(title.partition("/")[0] for title in grouped if "/" in title)
    charts: list[Chart] = []
    for title, members in grouped.items():
        validated = [name for name in members if _prefix_and_rest(name)[0] in evaluations]
        metrics = sorted(members, key=lambda name: (_prefix_and_rest(name)[0] in evaluations, name))
        heading = _heading(title, bool(validated))
        family = title.partition("/")[0]
        if heading == MORE and families[family] >= SHARED_PREFIX:
            heading = family
        charts.append(Chart(title, heading, metrics, validated))
    charts.sort(key=_rank)
    if sum(chart.heading != LEARNING for chart in charts) <= FEW:
        charts = [
            chart if chart.heading == LEARNING else replace(chart, heading=MORE) for chart in charts
        ]
    return charts


def by_heading(charts: Iterable[Chart]) -> list[tuple[str, list[Chart]]]:
    """The headings, each with its charts."""
    return [(name, [*group]) for name, group in groupby(charts, attrgetter("heading"))]


def splits(charts: Iterable[Chart]) -> list[str]:
    """The splits that charts compare, from training to test; empty if no chart compares any."""
    found = dict.fromkeys(chart.split_of(name) for chart in charts for name in chart.metrics)
    found.pop("", None)
    usual = (TRAINING_SPLIT, *EVALUATION)
    return sorted(found, key=lambda name: usual.index(name) if name in usual else len(usual))


def _rank(chart: Chart) -> tuple[float, str, bool]:
    """Learning, rates, metrics without a family, families; in each the loss or the rate first."""
    is_first = bool(_is_loss(chart.title) or RATE.search(chart.title))
    if chart.heading in HEADINGS:
        return HEADINGS.index(chart.heading), "", not is_first
    return len(HEADINGS), chart.heading, not is_first


def _heading(title: str, is_validated: bool) -> str:
    if RATE.search(title) or RESOURCES.search(title):
        return RATE_AND_PACE
    return LEARNING if is_validated or _is_loss(title) else MORE


def _is_loss(title: str) -> bool:
    return "loss" in title.split("/")


def _prefix_and_rest(name: str) -> tuple[str, str]:
    """The prefix, such as `val`, and the rest; both are empty for a name without a slash."""
    prefix, slash, rest = name.partition("/")
    return (prefix, rest) if slash else ("", "")
