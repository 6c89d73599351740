"""The charts of a page as figures of plotly: their traces and layouts, ready for JSON.

A trace's `meta` is for the page's own code: the trace's colour, such as `c0` or `ink`, of which the
style sheet has one for light and one for dark; its run and split, by which the legend hides it; and
its metric. A figure leaves out what all figures share, which is in the template of `page.js`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...files import printable
from .charts import Chart, splits
from .facts import RunFacts, RunPart
from .text import ascii_key, duration, iso_time

Figure = dict[str, Any]
COLOURS = 10
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "diamond", "square", "triangle-up")
SMOOTHED_FROM = 20
"""Rows: fewer are clearer without smoothing."""
OUTCOMES = {
    "completed": ("finished", "good"),
    "interrupted": ("interrupted, to go on", "warn"),
    "failed": ("failed", "bad"),
    "killed": ("killed", "bad"),
    "running": ("running", "accent"),
    "silent": ("no word for {}", "warn"),
}
"""How a part of a run ended: the words for it, and its colour."""
TOOLTIP = {"hovertemplate": "%{customdata}<extra></extra>"}
BAR: Figure = {"type": "bar", "orientation": "h", "width": 0.4, **TOOLTIP}
MARK: Figure = {"type": "scatter", "mode": "markers", "meta": {"colour": "ink"}, **TOOLTIP}


def figures_of(charts: Sequence[Chart], runs: Sequence[RunFacts]) -> dict[str, Figure]:
    """All figures of a page, by the keys that the page's elements name."""
    names = splits(charts)
    found = {chart.key: chart_figure(chart, runs, names) for chart in charts}
    for place, run in enumerate(runs):
        for name, histogram in run.histograms.items():
            found[histogram_key(place, name)] = _histogram_figure(histogram, place)
    return found | {"timeline": timeline_figure(runs)}


def histogram_key(place: int, name: str) -> str:
    """The key of the figure for the histograms of a metric in the run at this place."""
    return f"histogram {place} {ascii_key(name)}"


def look_of(run: int, split: int, runs: int) -> tuple[str, str]:
    """The colour and dash of a curve: by run, or by split if there is only one run."""
    place = run if runs > 1 else split
    return f"c{place % COLOURS}", DASHES[place // COLOURS % len(DASHES)]


def chart_figure(chart: Chart, runs: Sequence[RunFacts], all_splits: Sequence[str]) -> Figure:
    """The curves of all runs in one chart; a split has one colour in all charts of the page."""
    traces = [
        trace
        for place, run in enumerate(runs)
        for number, name in enumerate(chart.metrics)
        if name in run.curves
        for trace in _curve_traces(chart, name, number, runs, place, all_splits)
    ]
    values = [y for trace in traces if "yaxis" not in trace for y in trace["y"] if y is not None]
    resumed = [
        part.first["iteration"]
        for part in runs[0].parts
        if part.first["event"] == "resumed" and part.first["iteration"] > 0
    ]
    return {
        "data": traces,
        "layout": {
            "xaxis": {"title": {"text": "iteration"}},
            "yaxis": _y_axis(values),
            # The foot of the chart, where values that are not finite are marked.
            "yaxis2": {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
            "shapes": [
                {"type": "line", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1}
                for at in (resumed if len(runs) == 1 else [])
            ],
        },
    }


def _y_axis(values: Sequence[float]) -> Figure:
    """Plotly's own axis; for a constant, a range wide enough to read the value."""
    if len(set(values)) != 1 or not values[0]:
        return {}
    low, high = sorted([values[0] / 2, values[0] * 1.5])
    return {"autorangeoptions": {"minallowed": low, "maxallowed": high}}


def _curve_traces(
    chart: Chart,
    name: str,
    number: int,
    runs: Sequence[RunFacts],
    place: int,
    all_splits: Sequence[str],
) -> Iterator[Figure]:
    """The curve of a metric in the run at this place, and the marks of its values not finite."""
    run, is_validated = runs[place], name in chart.validated
    curve, split = run.curves[name], chart.split_of(name)
    index = all_splits.index(split) if split in all_splits else 0
    same = chart.places[name]
    colour, dash = look_of(place, index, len(runs))
    label = name if len(runs) == 1 else run.name
    if len(runs) > 1 and len(chart.metrics) > 1:
        label = f"{run.name}: {name}"
    is_smooth = not is_validated and curve["count"] >= SMOOTHED_FROM and chart.is_smoothed
    has_points = curve["count"] == 1 or (is_validated and curve["count"] <= 100)
    is_thin = len(runs) > 1 and split and not is_validated
    uid = f"{place}-{number}"  # plotly.js looks for it as the name of a class
    meta: Figure = {"colour": colour, "run": place, "split": ascii_key(split)}
    meta |= {"of": printable(run.name), "name": printable(name)}
    common: Figure = {"type": "scatter", "name": printable(label)}
    yield {
        **common,
        "uid": f"raw-{uid}",
        "x": curve["x"],
        "y": curve["y"],
        "mode": "lines+markers" if has_points else "lines",
        "line": {
            "width": 1.25 if is_thin else 2,
            "shape": curve.get("shape", "linear"),
            "dash": dash if same == 0 else DASHES[same % len(DASHES)],
        },
        "marker": {"size": 5 if index < 2 else 7, "symbol": SYMBOLS[max(0, index - 1) % 4]},
        "hovertemplate": "%{y:.4~g}<extra>%{fullData.name}</extra>",
        "meta": meta | ({"smooth": curve.get("means", {})} if is_smooth else {}),
    }
    if odd := curve["odd"]["x"]:
        yield {
            **common,
            "uid": f"odd-{uid}",
            "name": f"{common['name']}: not a number",
            "x": odd,
            "y": [0.03] * len(odd),
            "yaxis": "y2",
            "mode": "markers",
            "marker": {"symbol": "x-thin-open", "size": 8, "line": {"width": 2.5}},
            "hovertemplate": "not a number<extra>%{fullData.name}</extra>",
            "meta": meta,
        }


def _histogram_figure(histogram: dict[str, Any], place: int) -> Figure:
    """A heat map: how the values of a metric are spread, over the run at this place."""
    colour, _ = look_of(place, 0, 2)
    trace = {
        "type": "heatmap",
        **{axis: histogram[axis] for axis in "xyz"},
        "uid": "heatmap",
        "zmin": 0,
        "showscale": False,
        "hovertemplate": "%{z:.1%} of the values near %{y:.3~g}<extra></extra>",
        "meta": {"colour": colour, "run": place},
    }
    layout = {"xaxis": {"title": {"text": "iteration"}}, "yaxis": {}, "hovermode": "closest"}
    return {"data": [trace], "layout": layout}


def outcome(part: RunPart) -> str:
    """How a part of a run ended, in words."""
    return OUTCOMES[part.end][0].format(duration(60 * (part.silence // 60), whole=True))


def timeline_figure(runs: Sequence[RunFacts]) -> Figure:
    """The parts of all runs by the clock: a bar each, with marks for restarts and checkpoints."""
    traces: dict[str, Figure] = {}
    for run in runs:
        row = printable(run.name)
        for part in run.parts:
            words, colour = outcome(part), OUTCOMES[part.end][1]
            bar = traces.setdefault(words, BAR | {"name": words, "meta": {"colour": colour}})
            began = f"{part.first['event']} at iteration {part.first['iteration']}"
            text = f"{began}, {part.end} at iteration {part.last['iteration']}"
            start = iso_time(part.first["time"])
            _add(bar, y=row, base=start, x=1000 * part.seconds, customdata=text)
            marks = [("checkpoint", "diamond", 8, save) for save in part.saves]
            if part is not run.parts[0] or part.first["event"] == "resumed":
                marks.append(("started again", "line-ns-open", 26, part.first))
            for label, symbol, size, line in marks:
                marker = {"symbol": symbol, "size": size, "line": {"width": 2}}
                mark = traces.setdefault(label, MARK | {"name": label, "marker": marker})
                source = line.get("checkpoint")
                text = f"{label} at iteration {line['iteration']}"
                text += f", from {printable(str(source))}" if source else ""
                _add(mark, y=row, x=iso_time(line["time"]), customdata=text)
    return {
        "data": sorted(traces.values(), key=lambda trace: str(trace["type"])),
        "layout": {
            "xaxis": {"type": "date"},
            "yaxis": {
                **{"type": "category", "showticklabels": len(runs) > 1, "fixedrange": True},
                **{"showgrid": False, "range": [len(runs) - 0.3, -0.7]},
            },
            **{"barmode": "overlay", "hovermode": "closest", "showlegend": True},
        },
    }


def _add(trace: Figure, **point: Any) -> None:
    """Add a point to a trace, which holds a list for each coordinate."""
    for name, value in point.items():
        trace.setdefault(name, []).append(value)
