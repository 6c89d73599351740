"""The sections of a page as HTML: its head, the places of its charts, and its tables."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from ..common.table import readable_size
from .charts import LEARNING, Chart
from .figures import OUTCOMES
from .markup import (
    ABSENT,
    Cell,
    Html,
    clock,
    code,
    counted,
    duration,
    joined,
    number,
    right,
    table,
    tag,
)

RunFacts = dict[str, Any]
"""What `Run.facts` tells of one run."""
LOWER_IS_BETTER = re.compile("loss|error|perplexity|mse|mae|rmse|nll", re.IGNORECASE)


def sections(runs: Sequence[RunFacts], drawn: Sequence[Chart], *, is_live: bool) -> dict[str, Html]:
    """Each section by its name; all but the charts are empty until a run that is watched begins."""
    names = ("head", "charts", "timeline", "best", "checkpoints", "config", "environment")
    if is_live and not any(run["curves"] or run["parts"] or run["checkpoints"] for run in runs):
        text = "Waiting for the run to begin. This page goes on by itself."
        return dict.fromkeys([*names, "handlers"], Html()) | {
            "charts": tag("p", text, class_="empty wait")
        }
    missing = "Nothing tells {}. Add Journal(directory) to the handlers."
    config = "Nothing tells its configuration: Journal(directory, config=…) does."
    return {
        "head": _head(runs, drawn),
        "charts": _charts(runs, drawn),
        "timeline": _timeline(runs) or _empty(missing.format("when it started and stopped")),
        "best": _best(runs, drawn) or _empty("No metric was measured."),
        "checkpoints": _each_run(runs, _checkpoints),
        "config": _named("config", runs) or _empty(config),
        "environment": _named("environment", runs) or _empty(missing.format("where it ran")),
        "handlers": _each_run(runs, lambda run: _handlers(run, is_open=len(runs) == 1)),
    }


def _empty(text: str) -> Html:
    return tag("p", text, class_="empty")


def _each_run(runs: Sequence[RunFacts], make: Callable[[RunFacts], Html]) -> Html:
    if len(runs) == 1:
        return make(runs[0])
    return joined(
        each for run in runs for each in (tag("h3", run["name"], class_="run"), make(run))
    )


def _head(runs: Sequence[RunFacts], drawn: Sequence[Chart]) -> Html:
    if len(runs) == 1:
        figures = joined(_key_figures(runs[0], drawn)[:8])
        return joined([tag("p", _summary(runs[0]), id="summary"), tag("dl", figures, id="figures")])
    lines = (tag("span", tag("b", run["name"]), " ", _summary(run), class_="line") for run in runs)
    return tag("p", *lines, id="summary")


def _summary(run: RunFacts) -> Html:
    told: dict[str, Any] = run["progress"]
    if not told:
        return Html("No journal tells when it ran.")
    parts: list[dict[str, Any]] = run["parts"]
    limit = f" of {number(told['max_epochs'])}" if told.get("max_epochs") else ""
    reason = f" ({_first_line(parts[-1]['reason'], 200)})" if parts[-1]["reason"] else ""
    clocks = f"{counted(told['iteration'], 'iteration')}, {counted(told['step'], 'step')}"
    time = f"{duration(_busy(run))}{f' in {len(parts)} parts' if len(parts) > 1 else ''}"
    text = f"{reason} · epoch {number(told['epoch'])}{limit}, {clocks} · {time}"
    total = told.get("max_iterations") or (told.get("max_epochs") or 0) * (
        told.get("epoch_length") or 0
    )
    progress = Html()
    if told["end"] == "running" and total:
        done = min(told["iteration"], total)
        progress = tag("progress", max=total, value=done, aria_label="progress of the run")
    return joined([_end(told["end"]), text, progress])


def _end(end: str) -> Html:
    return tag("span", OUTCOMES[end][0], class_=f"state {end}")


def _busy(run: RunFacts) -> float:
    """The seconds in which a process was at work."""
    return float(sum(max(0, part["ended"] - part["began"]) for part in run["parts"]))


def _first_line(text: str, most: int) -> str:
    return text.partition("\n")[0][:most]


def _key_figures(run: RunFacts, drawn: Sequence[Chart]) -> list[Html]:
    chosen: list[Html] = []
    validated = (name for chart in drawn if chart.heading == LEARNING for name in chart.validated)
    for name in validated:
        which = "lowest" if LOWER_IS_BETTER.search(name) else "highest"
        if point := run["curves"].get(name, {}).get(which):
            at = f"at iteration {number(point['iteration'])}, epoch {number(point['epoch'])}"
            chosen.append(_key_figure(f"{name}, {which}", number(point["value"]), at))
    for name in ("loss", "lr"):
        if curve := run["curves"].get(name):
            at = f"at iteration {number(curve['last']['iteration'])}"
            chosen.append(_key_figure(f"{name}, last", number(curve["last"]["value"]), at))
    done, busy = sum(part["to"] - part["from"] for part in run["parts"]), _busy(run)
    if done and busy:
        chosen.append(_key_figure("Pace", number(done / busy), "iterations per second"))
    if found := run["checkpoints"]:
        whole = [each["size"] for each in found if each["problem"] is None]
        broken = len(found) - len(whole)
        note = f"{broken} broken" if broken else readable_size(sum(whole))
        chosen.append(_key_figure("Checkpoints", str(len(found)), note))
    return chosen


def _key_figure(name: str, value: str, note: str) -> Html:
    return tag("div", tag("dt", name), tag("dd", value), tag("dd", note, class_="note"))


def _charts(runs: Sequence[RunFacts], drawn: Sequence[Chart]) -> Html:
    if not drawn:
        return _empty(
            'There are no rows of metrics. Add JSONLines("…/rows.jsonl") to the handlers, in this '
            "directory."
        )
    return joined(
        joined(
            [
                tag("h2", heading),
                tag("div", *(_card(chart, runs) for chart in charts), class_="grid"),
            ]
        )
        for heading, charts in groupby(drawn, lambda chart: chart.heading)
    )


def _card(chart: Chart, runs: Sequence[RunFacts]) -> Html:
    named = [
        (name if len(runs) == 1 else f"{run['name']}: {name}", run["curves"][name])
        for run in runs
        for name in chart.metrics
        if name in run["curves"]
    ]
    notes = joined(_notes(named))
    words = "; ".join(
        f"{name}: "
        + ", ".join(
            f"{which} {number(curve[which]['value'])}"
            for which in ("last", "lowest", "highest")
            if curve[which]
        )
        for name, curve in named
    )
    words = f"Chart of {' and '.join(chart.metrics)} by iteration. {words}."
    return chart_place(chart.key, chart.title, words, notes)


def chart_place(key: str, title: str, words: str, notes: Html, **attributes: str) -> Html:
    """Where the page's code draws the figure of this key."""
    place = {"class_": "chart", "role": "img", **attributes}
    return tag(
        "figure",
        tag("figcaption", tag("h3", title)),
        tag("div", aria_label=words, data_figure=key, **place),
        tag("p", notes, class_="notes"),
        class_="card",
    )


def _notes(named: Iterable[tuple[str, dict[str, Any]]]) -> Iterable[Html | str]:
    for name, curve in named:
        if "means" in curve:
            yield (
                f"{name}: {number(curve['count'])} rows, drawn as {number(len(curve['x']))} points "
                "that keep every peak. "
            )
        if odd := curve["odd"]["count"]:
            yield f"{name}: {counted(odd, 'value')} not a number (\N{MULTIPLICATION SIGN}). "
        if curve["lowest"] and curve["lowest"]["value"] <= 0:
            text = f"{name}: a logarithmic axis has no place for values that are not above zero. "
            yield tag("span", text, class_="log-y")


def _timeline(runs: Sequence[RunFacts]) -> Html:
    parts = [(run["name"], part) for run in runs for part in run["parts"]]
    if not parts:
        return Html()
    several = len(runs) > 1
    rows: list[list[Cell]] = []
    for name, part in parts:
        killed = "no last line in the journal" if part["end"] == "killed" else ABSENT
        row: list[Cell] = [
            f"{part['event']} at iteration {number(part['from'])}",
            right(clock(part["began"])),
            right(duration(part["ended"] - part["began"])),
            _end(part["end"]),
            right(number(part["to"])),
            _first_line(part["reason"], 300) or killed,
            right(str(len(part["saves"]))),
        ]
        rows.append([name, *row] if several else row)
    head: list[Cell] = ["run"] if several else []
    head += ["began", right("at"), right("lasted"), "ended", right("at iteration"), "why"]
    head.append(right("checkpoints"))
    words = "Timeline of the parts of the run; the table below says the same."
    style = f"height: {min(30, 8.5 + 2.2 * len(runs)):g}rem"
    place = chart_place("timeline", "By the clock", words, Html(), style=style)
    return joined([place, table("Parts of the run", head, rows)])


def _best(runs: Sequence[RunFacts], drawn: Sequence[Chart]) -> Html:
    names = [
        name
        for chart in drawn
        for name in chart.metrics
        if name in chart.validated or chart.heading == LEARNING
    ]
    if not names:
        return Html()
    if len(runs) == 1:
        which = "Lowest, highest and last values"
        told = ("lowest", "at iteration", "highest", "at iteration", "last", "rows")
        rows = (_extremes(name, runs[0]["curves"][name]) for name in names)
        return table(which, ["metric", *map(right, told)], rows)
    which = "Lowest, highest and last values of each run, with iterations"
    lines: list[list[Cell] | str] = []
    for name in names:
        curves = [run["curves"].get(name, {}) for run in runs]
        lines.append(name)
        for extreme in ("lowest", "highest", "last"):
            points = (_point(curve.get(extreme)) for curve in curves)
            lines.append([extreme, *points])
    return table(which, ["metric", *(right(run["name"]) for run in runs)], lines)


def _extremes(name: str, curve: dict[str, Any]) -> list[Cell]:
    cells: list[Cell] = [name]
    for point in (curve["lowest"], curve["highest"]):
        at = f"{number(point['iteration'])} (epoch {number(point['epoch'])})" if point else ABSENT
        cells += [right(number(point and point["value"])), right(at)]
    return [*cells, right(number(curve["last"]["value"])), right(number(curve["count"]))]


def _point(point: dict[str, Any] | None) -> Cell:
    if not point:
        return right(ABSENT)
    at = tag("span", f"at {number(point['iteration'])}", class_="mute")
    return right(joined([number(point["value"]), " ", at]))


def _checkpoints(run: RunFacts) -> Html:
    rows: list[list[Cell]] = [
        [
            code(each["name"]),
            right(number(each.get("iteration"))),
            right(number(each.get("epochs"))),
            right(readable_size(each["size"]) if "size" in each else ABSENT),
            right(clock(each.get("written"))),
            "whole, by its sizes"
            if each["problem"] is None
            else tag("span", f"broken: {each['problem']}", class_="state failed"),
            each.get("kept_by") or ABSENT,
            each.get("reason") or ABSENT,
        ]
        for each in reversed(run["checkpoints"])
    ]
    numbers = map(right, ("iteration", "epochs", "size", "written"))
    head: list[Cell] = ["checkpoint", *numbers, "state", "kept by", "why"]
    return (
        table("Checkpoints, the newest first", head, rows)
        if rows
        else _empty("There are no checkpoints.")
    )


def _named(key: str, runs: Sequence[RunFacts]) -> Html:
    """Values by name; of several runs, at first only the values that differ."""
    names = list(dict.fromkeys(name for run in runs for name in run[key]))
    if not names:
        return Html()
    values = [
        [_shown(run[key][name]) if name in run[key] else ABSENT for run in runs] for name in names
    ]
    if len(runs) == 1:
        pairs = zip(names, values, strict=True)
        return table(key, ["name", "value"], [[code(name), code(value)] for name, [value] in pairs])
    differs = ["code differs" if len(set(each)) > 1 else "code" for each in values]
    rows = [
        [(name, kind), *((value, kind) for value in each)]
        for name, each, kind in zip(names, values, differs, strict=True)
    ]
    count = differs.count("code differs")
    checked = {"checked": ""} if count else {}
    box = tag("input", type="checkbox", id=f"{key}-differences", **checked)
    label = tag("label", box, f"Only what differs ({count} of {len(names)})", class_="choice")
    nothing = Html() if count else _empty("Nothing differs.")
    return joined([label, table(key, ["name", *(run["name"] for run in runs)], rows), nothing])


def _shown(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def _handlers(run: RunFacts, *, is_open: bool) -> Html:
    calls: list[list[str]] = run["handlers"]
    if not calls:
        return _empty("Nothing tells which handlers it had. Add Journal(directory) to them.")
    rows: list[list[Cell] | str] = []
    for moment, group in groupby(calls, lambda call: call[0]):
        rows.append(moment.replace("Events.", ""))
        for _, stage, name, when, source in group:
            rows.append([code(name), stage, code(when.replace("Events.", "")), code(source)])
    summary = tag("summary", f"{counted(len(calls), 'call')} of handlers, in their order")
    shown = table("Handlers by moment", ["handler", "stage", "when", "source"], rows)
    return tag("details", summary, shown, **({"open": ""} if is_open else {}))
