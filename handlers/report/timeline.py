"""The parts of runs by the clock, and how each ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..files import printable
from .facts import Part, RunFacts
from .markup import Html, duration, local_time, tag

Figure = dict[str, Any]
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


def tell_outcome(part: Part) -> Html:
    """How a part of a run ended, in its colour."""
    return tag("span", outcome(part), class_=f"state {part.end}")


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
            _add(bar, y=printable(run.name), base=start, x=1000 * part.seconds, customdata=told)
            marks = [("checkpoint", "diamond", 8, save) for save in part.saves]
            if part is not run.parts[0] or part.first["event"] == "resumed":
                marks.append(("started again", "line-ns-open", 26, part.first))
            for words, symbol, size, line in marks:
                look = {"symbol": symbol, "size": size, "line": {"width": 2}}
                mark = traces.setdefault(words, MARK | {"name": words, "marker": look})
                told = f"{words} at iteration {line['iteration']}"
                _add(mark, y=printable(run.name), x=local_time(line["time"]), customdata=told)
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
