"""The charts of a page as figures of plotly: their traces and layouts, ready for JSON.

A trace names its colour, such as `c0` or `ink`, in `meta`: the page's style sheet has two of each,
for a light and for a dark screen. Whatever a figure leaves open, the page's template fills in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .charts import Chart
from .markup import local_time
from .parts import Part
from .run import RunFacts

Figure = dict[str, Any]
COLOURS = 8
SMOOTHED_FROM = 20
"""Rows: fewer are clearer without smoothing."""
OUTCOMES = {
    "completed": ("completed", "c2"),
    "interrupted": ("interrupted, to go on", "c4"),
    "failed": ("failed", "c1"),
    "killed": ("killed", "c3"),
    "running": ("running", "c0"),
}
"""How a part of a run ended: the words for it, and its colour."""


def chart_figure(chart: Chart, runs: Sequence[RunFacts]) -> Figure:
    """The curves of all runs in one chart."""
    traces = [
        trace
        for place, run in enumerate(runs)
        for index, name in enumerate(chart.metrics)
        if name in run.curves
        for trace in _curve_traces(chart, name, run, index if len(runs) == 1 else place, len(runs))
    ]
    resumed = [
        part.first["iteration"]
        for part in runs[0].parts
        if part.first["event"] == "resumed" and part.first["iteration"] > 0
    ]
    return {
        "data": traces,
        "layout": {
            "xaxis": {"title": {"text": "iteration"}, "hoverformat": ",d"},
            "yaxis": {},
            # The foot of the chart, where values that are not finite are marked.
            "yaxis2": {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
            "shapes": [
                {"type": "line", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1}
                for at in (resumed if len(runs) == 1 else [])
            ],
            "showlegend": len(traces) > 1 or chart.metrics != [chart.title],
        },
    }


def _curve_traces(
    chart: Chart, name: str, run: RunFacts, colour: int, runs: int
) -> Iterator[dict[str, Any]]:
    curve, is_validated = run.curves[name], name in chart.validated
    is_shared = len(chart.metrics) > 1
    label = name if runs == 1 else f"{run.name}: {name}" if is_shared else run.name
    shared = {"type": "scatter", "name": label, "legendgroup": label}
    meta: dict[str, Any] = {"colour": f"c{colour % COLOURS}"}
    smooth = chart.is_smoothed and not is_validated and curve["count"] >= SMOOTHED_FROM
    with_points = curve["count"] == 1 or (is_validated and curve["count"] <= 100)
    yield {
        **shared,
        "uid": f"{label} raw",
        "x": curve["x"],
        "y": curve["y"],
        "mode": "lines+markers" if with_points else "lines",
        "line": {
            "width": 2,
            "shape": curve.get("shape", "linear"),
            "dash": "dot" if runs > 1 and is_shared and not is_validated else "solid",
        },
        "marker": {"size": 5},
        "hovertemplate": "%{y:.4~g}<extra>%{fullData.name}</extra>",
        "meta": meta | ({"smooth": curve.get("means", {})} if smooth else {}),
    }
    if odd := curve["odd"]["x"]:
        yield {
            **shared,
            "uid": f"{label} odd",
            "name": f"{label}: no number",
            "x": odd,
            "y": [0.03] * len(odd),
            "yaxis": "y2",
            "mode": "markers",
            "marker": {"symbol": "x-thin-open", "size": 8, "line": {"width": 2.5}},
            "hovertemplate": "not a number<extra>%{fullData.name}</extra>",
            "meta": meta,
        }


def timeline_figure(runs: Sequence[RunFacts]) -> Figure:
    """The parts of all runs by the clock: a bar each, with marks for restarts and checkpoints."""
    parts = [(run.name, part) for run in runs for part in run.parts]
    traces = [
        _bars(words, colour, [(name, part) for name, part in parts if part.end == end])
        for end, (words, colour) in OUTCOMES.items()
    ]
    restarts = [
        (part.first, run.name, _told(part.first))
        for run in runs
        for part in run.parts
        if part is not run.parts[0] or part.first["event"] == "resumed"
    ]
    saves = [
        (save, name, f"checkpoint at iteration {save['iteration']}")
        for name, part in parts
        for save in part.saves
    ]
    traces.append(_marks("started again", "line-ns-open", 26, restarts))
    traces.append(_marks("checkpoint", "diamond", 9, saves))
    return {
        "data": [trace for trace in traces if trace["y"]],
        "layout": {
            "xaxis": {"type": "date"},
            "yaxis": {
                **{"type": "category", "showticklabels": len(runs) > 1, "fixedrange": True},
                **{"showgrid": False, "range": [len(runs) - 0.3, -0.7]},
            },
            **{"barmode": "overlay", "hovermode": "closest", "showlegend": True},
        },
    }


def _bars(words: str, colour: str, parts: list[tuple[str, Part]]) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": words,
        "width": 0.4,
        "base": [local_time(part.first["time"]) for _, part in parts],
        "x": [1000 * part.seconds for _, part in parts],
        "y": [name for name, _ in parts],
        "customdata": [
            f"{_told(part.first)}, {part.end} at iteration {part.last['iteration']}"
            for _, part in parts
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
        "meta": {"colour": colour},
    }


def _told(line: dict[str, Any]) -> str:
    return f"{line['event']} at iteration {line['iteration']}"


def _marks(
    words: str, symbol: str, size: int, marks: list[tuple[dict[str, Any], str, str]]
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": words,
        "x": [local_time(line["time"]) for line, _, _ in marks],
        "y": [name for _, name, _ in marks],
        "customdata": [told for _, _, told in marks],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"symbol": symbol, "size": size, "line": {"width": 2}},
        "meta": {"colour": "ink"},
    }
