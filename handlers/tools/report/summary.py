"""What a page says of runs in numbers: how far and how good each is, and in what they differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ...files import printable
from .charts import LEARNING, Chart, charts_of
from .facts import GlancedFiles, RunDirectory, RunFacts
from .figures import outcome
from .text import ABSENT, counted, number, size

LOWER_IS_BETTER = re.compile("loss|error|perplexity|mse|mae|rmse|nll", re.IGNORECASE)
MOST_COMPARED = 4
"""Metrics in the table of several runs."""
MOST_SHOWN = 6
"""Settings in this table."""
MOST_SETTINGS = 100
"""Settings by which the runs can be filtered and grouped."""
MOST_TILES = 8
Curves = Sequence[tuple[str, dict[str, Any]]]
"""The curves of a chart, each with its label."""


def status(runs: Sequence[RunFacts]) -> str:
    """How the runs are, in a few words, such as `2 finished, 1 running`."""
    counts = Counter(outcome(run.last_part) if run.last_part else "no journal" for run in runs)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {words}" for words, count in counts.items())


def is_over(runs: Sequence[RunFacts]) -> bool:
    """True if the journals of all runs tell of an end."""
    return all(run.last_part and not run.last_part.is_open for run in runs)


def key_metrics(charts: Sequence[Chart]) -> list[str]:
    """The metrics of evaluations, or of all learning charts if there are none."""
    learning = [chart for chart in charts if chart.heading == LEARNING]
    measured = [name for chart in learning for name in chart.validated]
    return measured or [name for chart in learning for name in chart.metrics]


def measured(charts: Sequence[Chart]) -> list[str]:
    """The metrics of the table of best rows: of the learning, and those of evaluations."""
    return [
        name
        for chart in charts
        for name in chart.metrics
        if name in chart.validated or chart.heading == LEARNING
    ]


def best_extreme(metric: str) -> str:
    """Which extreme of a metric is its best value."""
    return "lowest" if LOWER_IS_BETTER.search(metric) else "highest"


def glance(directory: Path, name: str) -> tuple[RunFacts, tuple[str, str, float] | None]:
    """The facts about a run without its curves, and its key result.

    This is the first metric of its evaluations, or its loss, which extreme is best, and this value.
    """
    rows = GlancedFiles(directory, lambda names: next(iter(key_metrics(charts_of(names))), ""))
    place = RunDirectory(directory, name, rows)
    place.look()
    run = place.facts()
    for metric in key_metrics(charts_of(run.curves)):
        if (found := rows.extremes(metric)) is None:
            other = GlancedFiles(directory, partial(_if_there, metric))
            other.look()
            found = other.extremes(metric)
        if found:
            which = best_extreme(metric)
            return run, (metric, which, found[which == "highest"])
    return run, None


def _if_there(metric: str, names: Iterable[str]) -> str:
    return metric if metric in names else ""


def tiles(run: RunFacts, charts: Sequence[Chart]) -> Iterator[tuple[str, str, str]]:
    """The most important facts of one run: names, values, and a note on each."""
    for name in key_metrics(charts):
        extreme = best_extreme(name)
        if point := run.curves[name][extreme]:
            at = f"iteration {number(point['iteration'])}, epoch {number(point['epoch'])}"
            yield f"{name}, {extreme}", number(point["value"]), at
    for name in ("loss", "lr"):
        if name in run.curves:
            point = run.curves[name]["last"]
            at = f"iteration {number(point['iteration'])}"
            yield f"{name}, last", number(point["value"]), at
    done = sum(part.last["iteration"] - part.first["iteration"] for part in run.parts)
    if done and run.seconds:
        yield "Pace", number(done / run.seconds), "iterations per second"
    if run.checkpoints:
        broken = sum(each.problem is not None for each in run.checkpoints)
        total = sum(each.saved.manifest.size for each in run.checkpoints if each.saved)
        note = f"{broken} broken" if broken else size(total)
        yield "Checkpoints", str(len(run.checkpoints)), note


def best_of_runs(metric: str, runs: Sequence[RunFacts]) -> list[tuple[float | None, bool]]:
    """The best value of a metric in each run.

    The flag is True if no other run has a better value, and some have a worse one.
    """
    extreme = best_extreme(metric)
    points = [run.curves.get(metric, {}).get(extreme) for run in runs]
    values = [float(point["value"]) if point else None for point in points]
    known = {value for value in values if value is not None}
    first = min(known, default=None) if extreme == "lowest" else max(known, default=None)
    return [(value, value == first and len(known) > 1) for value in values]


def extremes(metric: str, runs: Sequence[RunFacts]) -> list[tuple[list[str], Sequence[str]]]:
    """The rows of a metric in the table of best rows: names of runs, and the cells.

    Runs of which all cells are equal share a row.
    """
    names: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        if curve := run.curves.get(metric):
            names.setdefault(tuple(_cells(curve)), []).append(run.name)
    return [(found, cells) for cells, found in names.items()]


def _cells(curve: dict[str, Any]) -> Iterator[str]:
    for point in (curve["lowest"], curve["highest"]):
        yield number(point and point["value"])
        at = point and f"{number(point['iteration'])} (epoch {number(point['epoch'])})"
        yield at or ABSENT
    yield number(curve["last"]["value"])
    yield number(curve["count"])


class Setting(NamedTuple):
    """A value of the configuration, or of the environment, in each run."""

    name: str
    values: list[str]
    differs: bool


def settings(runs: Sequence[RunFacts], kind: str = "config") -> list[Setting]:
    """The settings of runs, or their `environment`, and whether the runs differ in each."""
    of_runs: list[dict[str, str]] = [getattr(run, kind) for run in runs]
    names = dict.fromkeys(name for each in of_runs for name in each)
    rows = {name: [each.get(name, ABSENT) for each in of_runs] for name in names}
    return [Setting(name, values, len({*values}) > 1) for name, values in rows.items()]


def telling_settings(runs: Sequence[RunFacts]) -> list[Setting]:
    """The settings in which runs differ, without paths that are another one in every run."""

    def is_path(values: Sequence[str]) -> bool:
        return "/" in "".join(values) and len({*values}) == len(values)

    return [each for each in settings(runs) if each.differs and not is_path(each.values)]


def rounded(found: Sequence[Setting]) -> list[Setting]:
    """The first of them as the table of runs shows them."""
    return [Setting(name, [*map(_rounded, values)], True) for name, values, _ in found[:MOST_SHOWN]]


def table(runs: Sequence[RunFacts], metrics: Sequence[str]) -> dict[str, Any]:
    """What the page's code filters, sorts and groups runs by, ready for JSON."""
    telling = telling_settings(runs)[:MOST_SETTINGS]
    return {
        "names": [printable(run.name) for run in runs],
        "tags": [run.written.tags for run in runs],
        "settings": {printable(each.name): each.values for each in telling},
        "results": {
            printable(f"{name}, {best_extreme(name)}"): [
                value for value, _ in best_of_runs(name, runs)
            ]
            for name in metrics
        },
    }


def _rounded(value: str) -> str:
    """A setting; of a fraction four digits."""
    with suppress(ValueError):
        return value if value.strip("-").isdecimal() else number(float(value))
    return value


def curves_in(chart: Chart, runs: Sequence[RunFacts]) -> Curves:
    """The curves of a chart; the label of each names its run if there are several."""
    return [
        (f"{run.name}: {name}" if len(runs) > 1 else name, run.curves[name])
        for run in runs
        for name in chart.metrics
        if name in run.curves
    ]


def notes_on(curves: Curves) -> Iterator[str]:
    """What the drawn curves do not show."""
    thinned = [(label, curve) for label, curve in curves if "means" in curve]
    if thinned:
        what = thinned[0][0] if len(thinned) == 1 else counted(len(thinned), "curve")
        most = "" if len(thinned) == 1 else "up to "
        rows = f"{most}{number(max(curve['count'] for _, curve in thinned))} rows"
        points = f"{most}{number(max(len(curve['x']) for _, curve in thinned))} points"
        yield f"{what}: {rows}, drawn as {points} that keep every peak."
    for label, curve in curves:
        if odd := curve["odd"]["count"]:
            yield f"{label}: {counted(odd, 'value')} not a number (\N{MULTIPLICATION SIGN})."


def not_positive(curves: Curves) -> list[str]:
    """The labels of the curves that a logarithmic axis cuts."""
    lowest = [(label, curve["lowest"]) for label, curve in curves]
    return [label for label, point in lowest if point and point["value"] <= 0]


def histograms(runs: Sequence[RunFacts]) -> list[tuple[str, int]]:
    """The metrics of histograms, each with the place of a run that has it."""
    names = dict.fromkeys(name for run in runs for name in run.histograms)
    return [(name, at) for name in names for at, run in enumerate(runs) if name in run.histograms]
