"""The head of a page: whether each run has finished, how good it is, and what differs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from ..common import readable_size
from .charts import LEARNING, Chart
from .facts import Part, RunFacts, number_in
from .figures import look_of, outcome
from .markup import ABSENT, Html, breakable, counted, duration, joined, number, table, tag

LOWER_IS_BETTER = re.compile("loss|error|perplexity|mse|mae|rmse|nll", re.IGNORECASE)
COLUMNS = 4
"""Metrics in the table of several runs, and as many values of their configurations."""


def head(runs: Sequence[RunFacts], drawn: Sequence[Chart]) -> Html:
    """What a person wants first, of one run or of several."""
    if len(runs) > 1:
        return _comparison(runs, drawn)
    (run,) = runs
    tiles = [
        tag("div", tag("dt", breakable(name)), tag("dd", value), tag("dd", note, class_="note"))
        for name, value, note in _key_figures(run, drawn)
    ]
    return joined([_summary(run), tag("dl", *tiles[:8], id="figures")])


def status(runs: Sequence[RunFacts]) -> str:
    """How the runs are, in a few words, such as `2 finished, 1 running`."""
    words = Counter(outcome(run.parts[-1]) if run.parts else "no journal" for run in runs)
    if len(words) == 1:
        return next(iter(words))
    return ", ".join(f"{count} {word}" for word, count in words.items())


def is_over(runs: Sequence[RunFacts]) -> bool:
    """True if the journals of all runs tell of an end."""
    return all(run.parts and not run.parts[-1].is_open for run in runs)


def swatch(colour: str, dash: str) -> Html:
    """A piece of a curve."""
    return tag("i", class_=f"swatch {dash}", style=f"color: var(--{colour})", aria_hidden="true")


def tell_outcome(part: Part) -> Html:
    """How a part of a run ended, in its colour."""
    return tag("span", outcome(part), class_=f"state {part.end}")


def work(run: RunFacts) -> float:
    """The seconds in which a process was at work."""
    return sum(part.seconds for part in run.parts)


def _summary(run: RunFacts) -> Html:
    if not run.parts:
        to_add = "No journal tells when it ran. Add Journal(directory) to the handlers."
        return tag("p", to_add, id="summary")
    part, count = run.parts[-1], len(run.parts)
    reason, more = part.reason, Html()
    if part.end == "failed" or len(reason) > 80:
        reason, more = "", tag("p", part.reason, class_="reason", id="reason")
    epochs = number_in(run.limits, "max_epochs")
    told = [
        f"epoch {number(part.last['epoch'])}{f' of {number(epochs)}' if epochs else ''}",
        counted(part.last["iteration"], "iteration"),
        *([counted(part.last["step"], "step")] if part.last["step"] else []),
        f"{duration(work(run))}{f' in {count} parts' if count > 1 else ''}",
    ]
    text = f"{f' ({reason})' if reason else ''} · {' · '.join(told)}"
    summary = tag("p", tell_outcome(part), text, id="summary")
    return joined([summary, _progress(run), more])


def _progress(run: RunFacts) -> Html:
    """How far a run is that goes on, and how long it may still take."""
    part, total = run.parts[-1], _total(run)
    if part.end not in ("running", "silent") or not total:
        return Html()
    done, began = part.last["iteration"], part.first["iteration"]
    left = ""
    if done > began and total > done:
        left = (
            f", about {duration((total - done) * part.seconds / (done - began), whole=True)} left"
        )
    bar = tag("progress", max=total, value=min(done, total), aria_label="progress of the run")
    return tag("p", bar, f"{min(done / total, 1):.0%}{left}", class_="progress")


def _total(run: RunFacts) -> float:
    """The iterations that a run is to have; 0 if nothing tells."""
    epochs, length = (number_in(run.limits, name) for name in ("max_epochs", "epoch_length"))
    return number_in(run.limits, "max_iterations") or epochs * length


def _key_metrics(drawn: Sequence[Chart]) -> list[str]:
    """What evaluations measured, or else the losses."""
    learning = [chart for chart in drawn if chart.heading == LEARNING]
    measured = [name for chart in learning for name in chart.validated]
    return measured or [name for chart in learning for name in chart.metrics]


def _better(name: str) -> str:
    return "lowest" if LOWER_IS_BETTER.search(name) else "highest"


def _key_figures(run: RunFacts, drawn: Sequence[Chart]) -> Iterator[tuple[str, str, str]]:
    for name in _key_metrics(drawn):
        if point := run.curves[name][which := _better(name)]:
            at = f"iteration {number(point['iteration'])}, epoch {number(point['epoch'])}"
            yield f"{name}, {which}", number(point["value"]), at
    for name in ("loss", "lr"):
        if name in run.curves:
            point = run.curves[name]["last"]
            at = f"iteration {number(point['iteration'])}"
            yield f"{name}, last", number(point["value"]), at
    done = sum(part.last["iteration"] - part.first["iteration"] for part in run.parts)
    if done and (busy := work(run)):
        yield "Pace", number(done / busy), "iterations per second"
    if found := run.checkpoints:
        whole = [each["size"] for each in found if each["problem"] is None]
        broken = len(found) - len(whole)
        note = f"{broken} broken" if broken else readable_size(sum(whole))
        yield "Checkpoints", str(len(found)), note


def _comparison(runs: Sequence[RunFacts], drawn: Sequence[Chart]) -> Html:
    """A row for each run: how it ended, its best values, and its configuration where it differs."""
    metrics = _key_metrics(drawn)[:COLUMNS]
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
    best = [f"{name}, {_better(name)}" for name in metrics]
    head = ("run", "state", *best, *settings, "iterations", "time")
    columns = f"ll{'r' * len(metrics)}{'r' * len(settings)}rr"
    return tag("div", table("The runs", columns, head, rows), id="runs")


def _best(name: str, run: RunFacts, runs: Sequence[RunFacts]) -> str:
    """The best value of a metric in a run, marked if no other run has a better one."""
    which = _better(name)
    found = [_value(each, name, which) for each in runs]
    value = _value(run, name, which)
    if value is None:
        return ABSENT
    known = [each for each in found if each is not None]
    first = min(known) if which == "lowest" else max(known)
    is_best = value == first and set(known) != {first}
    return tag("b", number(value), class_="best") if is_best else number(value)


def _value(run: RunFacts, name: str, which: str) -> float | None:
    point: dict[str, Any] | None = run.curves.get(name, {}).get(which)
    return point and point["value"]


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
