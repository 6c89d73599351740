"""The head of a page about several runs: how each ended, how good it is, and what differs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from .charts import Chart
from .facts import RunFacts
from .figures import look_of
from .head import better, key_metrics, work
from .markup import ABSENT, Html, duration, joined, number, swatch, table, tag
from .timeline import tell_outcome

COLUMNS = 4
"""Metrics in the table of several runs, and as many values of their configurations."""


def comparison(runs: Sequence[RunFacts], drawn: Sequence[Chart]) -> Html:
    """A row for each run: how it ended, its best values, and its configuration where it differs."""
    metrics = key_metrics(drawn)[:COLUMNS]
    settings = _differing(runs)
    rows = [
        [
            joined([swatch(*look_of(place, 0, len(runs))), run.name]),
            tell_outcome(run.parts[-1]) if run.parts else ABSENT,
            *(_best(name, run, runs) for name in metrics),
            *(_setting(run.config.get(name, ABSENT)) for name in settings),
            number(run.parts[-1].last["iteration"]) if run.parts else ABSENT,
            duration(work(run)) if run.parts else ABSENT,
        ]
        for place, run in enumerate(runs)
    ]
    best = [f"{name}, {better(name)}" for name in metrics]
    head = ("run", "state", *best, *settings, "iterations", "time")
    columns = f"ll{'r' * len(metrics)}{'r' * len(settings)}rr"
    return tag("div", table("The runs", columns, head, rows), id="runs")


def _best(name: str, run: RunFacts, runs: Sequence[RunFacts]) -> str:
    """The best value of a metric in a run, marked if no other run has a better one."""
    which = better(name)
    found = [_value(each, name, which) for each in runs]
    value = _value(run, name, which)
    if value is None:
        return ABSENT
    known = [each for each in found if each is not None]
    first = min(known) if which == "lowest" else max(known)
    is_best = value == first and set(known) != {first}
    return tag("b", number(value), class_="best") if is_best else number(value)


def _value(run: RunFacts, name: str, which: str) -> float | None:
    point = run.curves.get(name, {}).get(which)
    return float(point["value"]) if point else None


def _setting(value: str) -> str:
    """A value of a configuration; of a fraction four digits."""
    with suppress(ValueError):
        return value if value.strip("-").isdecimal() else number(float(value))
    return value


def _differing(runs: Sequence[RunFacts]) -> list[str]:
    """The configuration in which runs differ, without what is another in each run, such as a path.

    A name of a directory tells no more than the name of the run.
    """
    names = dict.fromkeys(name for run in runs for name in run.config)
    found = [
        name
        for name in names
        if len({run.config.get(name) for run in runs}) > 1
        and not any("/" in run.config.get(name, "") for run in runs)
    ]
    return found[:COLUMNS]
