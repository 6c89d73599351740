"""The charts of a page as figures of plotly: their traces and layouts, ready for JSON.

A trace names its colour, such as `c0` or `ink`, in `meta`: the page's style sheet has two of each,
for a light and for a dark screen. There too stand its run and its set, which the legend hides, and
which clocks its iterations are looked up in. Whatever a figure leaves open, the page's template
fills in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..files import printable
from .charts import Chart, sets
from .facts import RunFacts
from .markup import key
from .timeline import Figure, timeline_figure

COLOURS = 10
DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "diamond", "square", "triangle-up")
SMOOTHED_FROM = 20
"""Rows: fewer are clearer without smoothing."""


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
        for number, name in enumerate(chart.metrics)
        if name in run.curves
        for trace in _curve_traces(chart, name, number, runs, place, groups)
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
    chart: Chart,
    name: str,
    number: int,
    runs: Sequence[RunFacts],
    place: int,
    groups: Sequence[str],
) -> Iterator[Figure]:
    run, is_validated = runs[place], chart.is_validated(name)
    curve, group = run.curves[name], chart.set_of(name)
    index = groups.index(group) if group in groups else 0
    same = chart.places[name]
    colour, dash = look_of(place, index, len(runs))
    label = name if len(runs) == 1 else run.name
    if len(runs) > 1 and len(chart.metrics) > 1:
        label = f"{run.name}: {name}"
    smooth = not is_validated and curve["count"] >= SMOOTHED_FROM and chart.is_smoothed
    with_points = curve["count"] == 1 or (is_validated and curve["count"] <= 100)
    uid = f"{place}-{number}"  # plotly.js looks for it as the name of a class
    meta: Figure = {"colour": colour, "run": place, "group": key(group)}
    meta |= {"of": printable(run.name), "name": printable(name)}
    shared: Figure = {"type": "scatter", "name": printable(label)}
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
            "name": f"{shared['name']}: not a number",
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
    return f"histogram {place} {key(name)}"
