"""The tables of a page: parts, best rows, checkpoints, configuration, environment, handlers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from ..common import readable_size
from .charts import LEARNING, Chart
from .facts import RunFacts
from .markup import ABSENT, Html, breakable, clock, counted, duration, joined, number, table, tag
from .timeline import tell_outcome


def empty(text: str) -> Html:
    """Stands where a page has nothing to show, and says why."""
    return tag("p", text, class_="empty")


def parts(run: RunFacts) -> Html:
    """Each part of a run, from its start to its end."""
    head = ("began", "at", "lasted", "ended", "at iteration", "why", "checkpoints")
    killed = {"killed": "no last line in the journal"}
    rows = [
        [
            f"{part.first['event']} at iteration {number(part.first['iteration'])}",
            clock(part.first["time"]),
            duration(part.seconds),
            tell_outcome(part),
            number(part.last["iteration"]),
            _first_line(part.reason, 300) or killed.get(part.end, ABSENT),
            str(len(part.saves)),
        ]
        for part in run.parts
    ]
    return table("Parts of the run", "lrrlrlr", head, rows)


def best(runs: Sequence[RunFacts], drawn: Sequence[Chart]) -> Html:
    """The extremes of each metric; those of several runs below one another."""
    rows: list[list[str] | str] = []
    metrics: list[str] = []
    for chart in drawn:
        for name in chart.metrics:
            if chart.is_validated(name) or chart.heading == LEARNING:
                found = _rows_of(name, runs)
                rows += found
                metrics += [name] * len(found)
    first = "metric" if len(runs) == 1 else "run"
    head = (first, "lowest", "at iteration", "highest", "at iteration", "last", "rows")
    label = "Lowest, highest and last values"
    return table(label, "lrrrrrr", head, rows, metrics=metrics) if rows else Html()


def _rows_of(name: str, runs: Sequence[RunFacts]) -> list[list[str] | str]:
    """What each run has of a metric; runs that have the same share a row."""
    if len(runs) == 1:
        return [[breakable(name), *_extremes(runs[0].curves[name])]]
    same: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        if name in run.curves:
            same.setdefault(tuple(_extremes(run.curves[name])), []).append(run.name)
    told = {
        cells: f"all {len(names)} runs" if 1 < len(names) == len(runs) else ", ".join(names)
        for cells, names in same.items()
    }
    return [name, *([label, *cells] for cells, label in told.items())]


def _extremes(curve: dict[str, Any]) -> list[str]:
    cells: list[str] = []
    for point in (curve["lowest"], curve["highest"]):
        at = f"{number(point['iteration'])} (epoch {number(point['epoch'])})" if point else ABSENT
        cells += [number(point and point["value"]), at]
    return [*cells, number(curve["last"]["value"]), number(curve["count"])]


def checkpoints(run: RunFacts) -> Html:
    """Each checkpoint, the newest first."""
    rows = [
        [
            each["name"],
            number(each.get("iteration")),
            number(each.get("epochs")),
            readable_size(each["size"]) if "size" in each else ABSENT,
            clock(each.get("written")),
            "whole, by its sizes"
            if each["problem"] is None
            else tag("span", f"broken: {each['problem']}", class_="state failed"),
            each.get("kept_by") or ABSENT,
            each.get("reason") or ABSENT,
        ]
        for each in reversed(run.checkpoints)
    ]
    head = ("checkpoint", "iteration", "epochs", "size", "written", "state", "kept by", "why")
    label = "Checkpoints, the newest first"
    return table(label, "mrrrrlll", head, rows) if rows else empty("There are no checkpoints.")


def named(key: str, runs: Sequence[RunFacts]) -> Html:
    """Values by name; of several runs, at first only the values that differ."""
    values: list[dict[str, str]] = [getattr(run, key) for run in runs]
    names = list(dict.fromkeys(name for each in values for name in each))
    if not names:
        return Html()
    rows = [[name, *(each.get(name, ABSENT) for each in values)] for name in names]
    if len(runs) == 1:
        return table(key, "mm", ("name", "value"), rows)
    differing = [place for place, [_, *cells] in enumerate(rows) if len(set(cells)) > 1]
    checked = {"checked": ""} if differing else {}
    box = tag("input", type="checkbox", id=f"{key}-differences", **checked)
    text = f"Only what differs ({len(differing)} of {len(names)})"
    head = ("name", *(run.name for run in runs))
    shown = table(key, "m" * len(head), head, rows, differing=differing)
    nothing = Html() if differing else empty("Nothing differs.")
    return joined([tag("label", box, text, class_="choice"), shown, nothing])


def handlers(run: RunFacts) -> Html:
    """Every call of a handler, by moment."""
    if not run.handlers:
        return empty("Nothing tells which handlers it had. Add Journal(directory) to them.")
    rows: list[list[str] | str] = []
    for moment, calls in groupby(run.handlers, lambda call: call[0].replace("Events.", "")):
        rows.append(moment)
        for _, stage, name, when, source in calls:
            rows.append([name, stage, when.replace("Events.", ""), source])
    text = f"{counted(len(run.handlers), 'call')} of handlers, in their order"
    return table(text, "mlmm", ("handler", "stage", "when", "source"), rows)


def _first_line(text: str, most: int) -> str:
    return text.partition("\n")[0][:most]
