"""The legend of a page: the runs, and what their metrics were measured on, each to be hidden."""

from __future__ import annotations

from collections.abc import Sequence

from .charts import Chart, sets
from .facts import RunFacts
from .figures import look_of
from .markup import Html, joined, key, swatch, tag


def legend(runs: Sequence[RunFacts], drawn: Sequence[Chart]) -> Html:
    """A button for each run, and for each set of data if charts compare several."""
    several = len(runs) > 1
    names = [run.name for run in runs] if several else []
    entries = [
        _entry("run", str(place), name, *look_of(place, 0, len(runs)))
        for place, name in enumerate(names)
    ]
    groups = sets(drawn)
    for place, group in enumerate(groups if len(groups) > 1 else []):
        colour, dash = ("ink", "thin" if place == 0 else "thick") if several else (f"c{place}", "")
        entries.append(_entry("group", key(group), group, colour, dash))
    return joined(entries)


def _entry(kind: str, value: str, label: str, colour: str, dash: str) -> Html:
    return tag(
        "button",
        swatch(colour, dash),
        tag("span", label),
        type="button",
        aria_pressed="true",
        data_hides=f"{kind} {value}",
        title="Click to hide or show, double-click to show nothing else",
    )
