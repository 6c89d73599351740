"""The charts of a page as figures of plotly: their traces and layouts, ready for JSON.

A trace names its colour, such as `c0` or `ink`, in `meta`: the page's style sheet has two of each,
for a light and for a dark screen. Whatever a figure leaves open, the page's template fills in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .charts import Chart
from .markup import local_time
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
TOLD = {"hovertemplate": "%{customdata}<extra></extra>"}
BAR: Figure = {"type": "bar", "orientation": "h", "width": 0.4, **TOLD}
MARK: Figure = {"type": "scatter", "mode": "markers", "meta": {"colour": "ink"}, **TOLD}


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
    traces: dict[str, Figure] = {}
    for run in runs:
        for part in run.parts:
            words, colour = OUTCOMES[part.end]
            began = f"{part.first['event']} at iteration {part.first['iteration']}"
            told = f"{began}, {part.end} at iteration {part.last['iteration']}"
            bar = traces.setdefault(words, BAR | {"name": words, "meta": {"colour": colour}})
            start = local_time(part.first["time"])
            _add(bar, y=run.name, base=start, x=1000 * part.seconds, customdata=told)
            marks = [("checkpoint", "diamond", 9, save) for save in part.saves]
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


def _add(trace: Figure, **point: Any) -> None:
    for key, value in point.items():
        trace.setdefault(key, []).append(value)
