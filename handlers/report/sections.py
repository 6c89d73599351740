"""The sections of a page as HTML: its head, the places of its charts, and its tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from ..common import readable_size
from .charts import LEARNING, Chart
from .figures import OUTCOMES
from .markup import ABSENT, Html, clock, counted, duration, joined, number, table, tag
from .parts import number_in
from .run import RunFacts

LOWER_IS_BETTER = re.compile("loss|error|perplexity|mse|mae|rmse|nll", re.IGNORECASE)


def sections(runs: Sequence[RunFacts], drawn: Sequence[Chart], *, is_live: bool) -> dict[str, Html]:
    """Each section by its name; only a waiting text until a run that is watched begins."""
    missing = "Nothing tells {}. Add Journal(directory) to the handlers."
    config = "Nothing tells its configuration: Journal(directory, config=…) does."
    found = {
        "head": _head(runs, drawn),
        "charts": _charts(runs, drawn),
        "timeline": _timeline(runs) or _empty(missing.format("when it started and stopped")),
        "best": _best(runs, drawn) or _empty("No metric was measured."),
        "checkpoints": _each_run(runs, _checkpoints),
        "config": _named("config", runs) or _empty(config),
        "environment": _named("environment", runs) or _empty(missing.format("where it ran")),
        "handlers": _each_run(runs, lambda run: _handlers(run, is_open=len(runs) == 1)),
    }
    if is_live and not any(run.is_begun for run in runs):
        text = "Waiting for the run to begin. This page goes on by itself."
        return dict.fromkeys(found, Html()) | {"charts": tag("p", text, class_="empty wait")}
    return found


def _empty(text: str) -> Html:
    return tag("p", text, class_="empty")


def _each_run(runs: Sequence[RunFacts], make: Callable[[RunFacts], Html]) -> Html:
    if len(runs) == 1:
        return make(runs[0])
    return joined(each for run in runs for each in (tag("h3", run.name, class_="run"), make(run)))


def _head(runs: Sequence[RunFacts], drawn: Sequence[Chart]) -> Html:
    if len(runs) > 1:
        lines = (tag("span", tag("b", run.name), " ", _summary(run), class_="line") for run in runs)
        return tag("p", *lines, id="summary")
    figures = [
        tag("div", tag("dt", name), tag("dd", value), tag("dd", note, class_="note"))
        for name, value, note in _key_figures(runs[0], drawn)
    ]
    return joined(
        [tag("p", _summary(runs[0]), id="summary"), tag("dl", *figures[:8], id="figures")]
    )


def _summary(run: RunFacts) -> Html:
    if not run.parts:
        return Html("No journal tells when it ran.")
    part, count = run.parts[-1], len(run.parts)
    epochs, length = number_in(run.limits, "max_epochs"), number_in(run.limits, "epoch_length")
    total = number_in(run.limits, "max_iterations") or epochs * length
    done: float = part.last["iteration"]
    text = (
        f"{f' ({_first_line(part.reason, 200)})' if part.reason else ''}"
        f" · epoch {number(part.last['epoch'])}{f' of {number(epochs)}' if epochs else ''}, "
        f"{counted(done, 'iteration')}, {counted(part.last['step'], 'step')}"
        f" · {duration(_busy(run))}{f' in {count} parts' if count > 1 else ''}"
    )
    progress = Html()
    if part.end == "running" and total:
        told = "progress of the run"
        progress = tag("progress", max=total, value=min(done, total), aria_label=told)
    return joined([_outcome(part.end), text, progress])


def _outcome(end: str) -> Html:
    return tag("span", OUTCOMES[end][0], class_=f"state {end}")


def _busy(run: RunFacts) -> float:
    """The seconds in which a process was at work."""
    return sum(part.seconds for part in run.parts)


def _first_line(text: str, most: int) -> str:
    return text.partition("\n")[0][:most]


def _key_figures(run: RunFacts, drawn: Sequence[Chart]) -> Iterator[tuple[str, str, str]]:
    """Names, values and notes."""
    for name in (name for chart in drawn if chart.heading == LEARNING for name in chart.validated):
        which = "lowest" if LOWER_IS_BETTER.search(name) else "highest"
        if point := run.curves[name][which]:
            at = f"at iteration {number(point['iteration'])}, epoch {number(point['epoch'])}"
            yield f"{name}, {which}", number(point["value"]), at
    for name in ("loss", "lr"):
        if name in run.curves:
            point = run.curves[name]["last"]
            at = f"at iteration {number(point['iteration'])}"
            yield f"{name}, last", number(point["value"]), at
    done = sum(part.last["iteration"] - part.first["iteration"] for part in run.parts)
    if done and (busy := _busy(run)):
        yield "Pace", number(done / busy), "iterations per second"
    if found := run.checkpoints:
        whole = [each["size"] for each in found if each["problem"] is None]
        broken = len(found) - len(whole)
        note = f"{broken} broken" if broken else readable_size(sum(whole))
        yield "Checkpoints", str(len(found)), note


def _charts(runs: Sequence[RunFacts], drawn: Sequence[Chart]) -> Html:
    if not drawn:
        to_add = 'Add JSONLines("…/rows.jsonl") to the handlers, in this directory.'
        return _empty(f"There are no rows of metrics. {to_add}")
    return joined(
        piece
        for heading, charts in groupby(drawn, lambda chart: chart.heading)
        for piece in (
            tag("h2", heading),
            tag("div", *(_curves_place(chart, runs) for chart in charts), class_="grid"),
        )
    )


def _curves_place(chart: Chart, runs: Sequence[RunFacts]) -> Html:
    named = [
        (name if len(runs) == 1 else f"{run.name}: {name}", run.curves[name])
        for run in runs
        for name in chart.metrics
        if name in run.curves
    ]
    words = f"Chart of {' and '.join(chart.metrics)} by iteration."
    for name, curve in named:
        points = [which for which in ("last", "lowest", "highest") if curve[which]]
        told = ", ".join(f"{which} {number(curve[which]['value'])}" for which in points)
        words += f" {name}: {told}."
    notes = (note for name, curve in named for note in _notes(name, curve))
    return _place(chart.key, chart.title, words, notes=joined(notes))


def _place(key: str, title: str, words: str, notes: Html, **attributes: str) -> Html:
    """Where the page's code draws the figure of this key."""
    place = {"class_": "chart", "role": "img", "aria_label": words, "data_figure": key}
    return tag(
        "figure",
        tag("figcaption", tag("h3", title)),
        tag("div", **place, **attributes),
        tag("p", notes, class_="notes"),
        class_="card",
    )


def _notes(name: str, curve: dict[str, Any]) -> Iterator[str]:
    if "means" in curve:
        drawn = f"{number(curve['count'])} rows, drawn as {number(len(curve['x']))} points"
        yield f"{name}: {drawn} that keep every peak. "
    if odd := curve["odd"]["count"]:
        yield f"{name}: {counted(odd, 'value')} not a number (\N{MULTIPLICATION SIGN}). "
    if curve["lowest"] and curve["lowest"]["value"] <= 0:
        text = f"{name}: a logarithmic axis has no place for values that are not above zero. "
        yield tag("span", text, class_="log-y")


def _timeline(runs: Sequence[RunFacts]) -> Html:
    if not any(run.parts for run in runs):
        return Html()
    words = "Timeline of the parts of the run; the table below says the same."
    style = f"height: {min(30, 8.5 + 2.2 * len(runs)):g}rem"
    place = _place("timeline", "By the clock", words, Html(), style=style)
    return joined([place, _each_run(runs, _parts)])


def _parts(run: RunFacts) -> Html:
    head = ("began", "at", "lasted", "ended", "at iteration", "why", "checkpoints")
    killed = {"killed": "no last line in the journal"}
    rows = [
        [
            f"{part.first['event']} at iteration {number(part.first['iteration'])}",
            clock(part.first["time"]),
            duration(part.seconds),
            _outcome(part.end),
            number(part.last["iteration"]),
            _first_line(part.reason, 300) or killed.get(part.end, ABSENT),
            str(len(part.saves)),
        ]
        for part in run.parts
    ]
    return table("Parts of the run", "lrrlrlr", head, rows)


def _best(runs: Sequence[RunFacts], drawn: Sequence[Chart]) -> Html:
    """The extremes of each metric; those of several runs below one another."""
    rows: list[list[str] | str] = []
    for chart in drawn:
        for name in chart.metrics:
            if name in chart.validated or chart.heading == LEARNING:
                rows += [name] if len(runs) > 1 else []
                rows += [
                    _extremes(run.name if len(runs) > 1 else name, run.curves[name])
                    for run in runs
                    if name in run.curves
                ]
    first = "metric" if len(runs) == 1 else "run"
    head = (first, "lowest", "at iteration", "highest", "at iteration", "last", "rows")
    return table("Lowest, highest and last values", "lrrrrrr", head, rows) if rows else Html()


def _extremes(name: str, curve: dict[str, Any]) -> list[str]:
    cells = [name]
    for point in (curve["lowest"], curve["highest"]):
        at = f"{number(point['iteration'])} (epoch {number(point['epoch'])})" if point else ABSENT
        cells += [number(point and point["value"]), at]
    return [*cells, number(curve["last"]["value"]), number(curve["count"])]


def _checkpoints(run: RunFacts) -> Html:
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
    return table(label, "mrrrrlll", head, rows) if rows else _empty("There are no checkpoints.")


def _named(key: str, runs: Sequence[RunFacts]) -> Html:
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
    shown = table(key, "m" * len(head), head, rows, differing)
    nothing = Html() if differing else _empty("Nothing differs.")
    return joined([tag("label", box, text, class_="choice"), shown, nothing])


def _handlers(run: RunFacts, *, is_open: bool) -> Html:
    if not run.handlers:
        return _empty("Nothing tells which handlers it had. Add Journal(directory) to them.")
    rows: list[list[str] | str] = []
    for moment, calls in groupby(run.handlers, lambda call: call[0].replace("Events.", "")):
        rows.append(moment)
        for _, stage, name, when, source in calls:
            rows.append([name, stage, when.replace("Events.", ""), source])
    text = f"{counted(len(run.handlers), 'call')} of handlers, in their order"
    shown = table("Handlers by moment", "mlmm", ("handler", "stage", "when", "source"), rows)
    return tag("details", tag("summary", text), shown, **({"open": ""} if is_open else {}))
