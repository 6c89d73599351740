"""The charts of a page as figures of plotly: their traces and layouts, ready for JSON.

A trace names its colour, such as `c0` or `ink`, in `meta`: the page's style sheet has two of each,
for a light and for a dark screen. There too stand its run and its set, which the legend hides, and
which clocks its iterations are looked up in. Whatever a figure leaves open, the page's template
fills in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .charts import Chart, sets
from .facts import Part, RunFacts
from .markup import duration, local_time

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
TOLD = {"hovertemplate": "%{customdata}<extra></extra>"}
BAR: Figure = {"type": "bar", "orientation": "h", "width": 0.4, **TOLD}
MARK: Figure = {"type": "scatter", "mode": "markers", "meta": {"colour": "ink"}, **TOLD}


def outcome(part: Part) -> str:
    """How a part of a run ended, in words."""
    return OUTCOMES[part.end][0].format(duration(60 * (part.silence // 60), whole=True))


def look_of(run: int, group: int, runs: int) -> tuple[str, str]:
    """The colour and the dash of a run; of one run alone, those of what it was measured on."""
    place = run if runs > 1 else group
    return f"c{place % COLOURS}", DASHES[place // COLOURS % len(DASHES)]


def chart_figure(chart: Chart, runs: Sequence[RunFacts], groups: Sequence[str]) -> Figure:
    """The curves of all runs in one chart.

    Args:
        chart: The chart.
        runs: The runs.
        groups: The sets of all charts, so that each has its colour everywhere.
    """
    traces = [
        trace
        for place, run in enumerate(runs)
        for name in chart.metrics
        if name in run.curves
        for trace in _curve_traces(chart, name, runs, place, groups)
    ]
    resumed = [
        part.first["iteration"]
        for part in runs[0].parts
        if part.first["event"] == "resumed" and part.first["iteration"] > 0
    ]
    return {
        "data": traces,
        "layout": {
            "xaxis": {"title": {"text": "iteration"}},
            "yaxis": _axis_of(
                [
                    y
                    for trace in traces
                    for y in trace["y"]
                    if "yaxis" not in trace and y is not None
                ]
            ),
            # The foot of the chart, where values that are not finite are marked.
            "yaxis2": {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
            "shapes": [
                {"type": "line", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1}
                for at in (resumed if len(runs) == 1 else [])
            ],
        },
    }


def _axis_of(values: Sequence[float]) -> Figure:
    """An axis; of a constant, one on which the constant can be read."""
    if len(set(values)) != 1 or not values[0]:
        return {}
    low, high = sorted([values[0] / 2, values[0] * 1.5])
    return {"autorangeoptions": {"minallowed": low, "maxallowed": high}}


def _curve_traces(
    chart: Chart, name: str, runs: Sequence[RunFacts], place: int, groups: Sequence[str]
) -> Iterator[Figure]:
    run, is_validated = runs[place], name in chart.validated
    curve, group = run.curves[name], chart.set_of(name)
    index = groups.index(group) if group in groups else 0
    same = [each for each in chart.metrics if chart.set_of(each) == group].index(name)
    colour, dash = look_of(place, index, len(runs))
    label = name if len(runs) == 1 else run.name
    if len(runs) > 1 and len(chart.metrics) > 1:
        label = f"{run.name}: {name}"
    smooth = not is_validated and curve["count"] >= SMOOTHED_FROM and chart.is_smoothed
    with_points = curve["count"] == 1 or (is_validated and curve["count"] <= 100)
    uid = f"{place}-{chart.metrics.index(name)}"  # plotly.js looks for it as the name of a class
    meta: Figure = {"colour": colour, "run": place, "of": run.name, "group": group, "name": name}
    shared: Figure = {"type": "scatter", "name": label}
    is_thin = len(runs) > 1 and group and not is_validated
    yield {
        **shared,
        "uid": f"raw-{uid}",
        "x": curve["x"],
        "y": curve["y"],
        "mode": "lines+markers" if with_points else "lines",
        "line": {
            "width": 1.25 if is_thin else 2,
            "shape": curve.get("shape", "linear"),
            "dash": dash if same == 0 else DASHES[same % len(DASHES)],
        },
        "marker": {"size": 5 if index < 2 else 7, "symbol": SYMBOLS[max(0, index - 1) % 4]},
        "hovertemplate": "%{y:.4~g}<extra>%{fullData.name}</extra>",
        "meta": meta | ({"smooth": curve.get("means", {})} if smooth else {}),
    }
    if odd := curve["odd"]["x"]:
        yield {
            **shared,
            "uid": f"odd-{uid}",
            "name": f"{label}: not a number",
            "x": odd,
            "y": [0.03] * len(odd),
            "yaxis": "y2",
            "mode": "markers",
            "marker": {"symbol": "x-thin-open", "size": 8, "line": {"width": 2.5}},
            "hovertemplate": "not a number<extra>%{fullData.name}</extra>",
            "meta": meta,
        }


def histogram_figure(histogram: dict[str, Any], place: int) -> Figure:
    """How the values of one metric of one run are spread, over the run."""
    colour, _ = look_of(place, 0, 2)
    trace = {
        "type": "heatmap",
        **{key: histogram[key] for key in "xyz"},
        "uid": "heatmap",
        "zmin": 0,
        "showscale": False,
        "hovertemplate": "%{z:.1%} of the values near %{y:.3~g}<extra></extra>",
        "meta": {"colour": colour, "run": place},
    }
    layout = {"xaxis": {"title": {"text": "iteration"}}, "yaxis": {}, "hovermode": "closest"}
    return {"data": [trace], "layout": layout}


def timeline_figure(runs: Sequence[RunFacts]) -> Figure:
    """The parts of all runs by the clock: a bar each, with marks for restarts and checkpoints."""
    traces: dict[str, Figure] = {}
    for run in runs:
        for part in run.parts:
            words, colour = outcome(part), OUTCOMES[part.end][1]
            began = f"{part.first['event']} at iteration {part.first['iteration']}"
            told = f"{began}, {part.end} at iteration {part.last['iteration']}"
            bar = traces.setdefault(words, BAR | {"name": words, "meta": {"colour": colour}})
            start = local_time(part.first["time"])
            _add(bar, y=run.name, base=start, x=1000 * part.seconds, customdata=told)
            marks = [("checkpoint", "diamond", 8, save) for save in part.saves]
            if part is not run.parts[0] or part.first["event"] == "resumed":
                marks.append(("started again", "line-ns-open", 26, part.first))
            for words, symbol, size, line in marks:
                look = {"symbol": symbol, "size": size, "line": {"width": 2}}
                mark = traces.setdefault(words, MARK | {"name": words, "marker": look})
                told = f"{words} at iteration {line['iteration']}"
                _add(mark, y=run.name, x=local_time(line["time"]), customdata=told)
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


def figures(drawn: Sequence[Chart], runs: Sequence[RunFacts]) -> dict[str, Figure]:
    """All figures of a page by their keys."""
    groups = sets(drawn)
    found = {chart.key: chart_figure(chart, runs, groups) for chart in drawn}
    for place, run in enumerate(runs):
        for name, histogram in run.histograms.items():
            found[histogram_key(place, name)] = histogram_figure(histogram, place)
    return found | {"timeline": timeline_figure(runs)}


def histogram_key(place: int, name: str) -> str:
    """Names the figure of a histogram in the page."""
    return f"histogram {place} {name}"


def _add(trace: Figure, **point: Any) -> None:
    for key, value in point.items():
        trace.setdefault(key, []).append(value)
