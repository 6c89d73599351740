"""The cards of a page with one iteration at a time: images, texts, curves, confusion matrices.

A card shows all runs at the iteration that a slider chooses. In the figures of curves and matrices,
a trace's `meta` names its iteration as `at`; the page's code draws those of one iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ...files import budget, printable
from .facts import Exhibit, RunFacts, to_show
from .figures import DASHES, Figure, look_of
from .text import ascii_key, number

HEADINGS = {
    "image": "Images",
    "text": "Texts",
    "curve": "Curves",
    "matrix": "Confusion matrices",
}
MOST_WRITTEN = 20
"""Classes of a confusion matrix up to which each cell has its number written in it."""


@dataclass(frozen=True)
class Card:
    """What one name shows, by the places of the runs that have it."""

    name: str
    kind: str
    shots: dict[int, list[Any]]
    """Pictures or exhibits, in the order of iterations."""
    left_out: int
    """How many more there are."""

    @property
    def iterations(self) -> list[int]:
        """All iterations at which a run has something to show."""
        return sorted({shot.iteration for each in self.shots.values() for shot in each})

    def key(self, place: int = 0) -> str:
        """The key of its figure: one for all runs of a curve, one for each run of a matrix."""
        where = place if self.kind == "matrix" else "all"
        return f"medium {self.kind} {where} {ascii_key(self.name)}"


def cards_of(runs: Sequence[RunFacts]) -> dict[str, list[Card]]:
    """The cards by the heading under which they stand."""
    images = {
        (name, place): each for place, run in enumerate(runs) for name, each in run.images.items()
    }
    of_kinds: dict[str, dict[tuple[str, int], list[Exhibit]]] = {}
    for place, run in enumerate(runs):
        for name, each in run.exhibits.items():
            kind = each[-1].kind  # a name may have had another one before
            is_mixed = any(shot.kind != kind for shot in each)
            same = [shot for shot in each if shot.kind == kind] if is_mixed else each
            of_kinds.setdefault(kind, {})[name, place] = same
    every = {key: each for kind in of_kinds.values() for key, each in kind.items()}
    chosen = {*to_show(images), *to_show(every, budget.LARGEST_MEDIA)}
    found = {"image": [*_cards("image", images, chosen)]}
    found |= {kind: [*_cards(kind, shots, chosen)] for kind, shots in of_kinds.items()}
    return {heading: found[kind] for kind, heading in HEADINGS.items() if found.get(kind)}


def _cards(
    kind: str, shots: Mapping[tuple[str, int], Sequence[Any]], chosen: set[Any]
) -> Iterator[Card]:
    for name in dict.fromkeys(name for name, _ in shots):
        of_name = {place: each for (other, place), each in shots.items() if other == name}
        shown = {
            place: found
            for place, each in of_name.items()
            if (found := [shot for shot in each if shot in chosen])
        }
        total = sum(getattr(each, "seen", len(each)) for each in of_name.values())
        yield Card(name, kind, shown, total - sum(map(len, shown.values())))


def media_figures(
    cards: Mapping[str, Sequence[Card]], runs: Sequence[RunFacts]
) -> dict[str, Figure]:
    """The figures of curves and confusion matrices by their keys."""
    found: dict[str, Figure] = {}
    for card in chain(*cards.values()):
        if card.kind == "curve" and card.shots:
            found[card.key()] = _curve_figure(card, runs)
        elif card.kind == "matrix":
            found |= {card.key(place): _matrix_figure(card, place) for place in card.shots}
    return found


def _curve_figure(card: Card, runs: Sequence[RunFacts]) -> Figure:
    traces = [
        trace
        for place, shots in card.shots.items()
        for shot in shots
        for trace in _lines(card, shot, place, runs)
    ]
    newest = next(shots[-1].content["axes"] for shots in card.shots.values())
    places = [each for trace in traces for each in trace["x"] + trace["y"] if each is not None]
    is_share = all(0 <= each <= 1 for each in places)
    axes: list[Figure] = [{"title": {"text": printable(name)}} for name in newest]
    for axis in axes if is_share else ():
        axis |= {"range": [-0.01, 1.02]}
    is_named = len(runs) == 1 and len({trace["name"] for trace in traces}) > 1
    layout = {"xaxis": axes[0], "yaxis": axes[1], "hovermode": "closest", "showlegend": is_named}
    return {"data": traces, "layout": layout | {"meta": {"own": True}}}


def _lines(card: Card, shot: Exhibit, place: int, runs: Sequence[RunFacts]) -> Iterator[Figure]:
    content = shot.content
    labels = content["labels"] or [card.name] * len(content["x"])
    for index, (x, y) in enumerate(zip(content["x"], content["y"], strict=True)):
        colour, _ = look_of(place, index, len(runs))
        label = labels[index] if content["labels"] or len(runs) == 1 else ""
        label = ": ".join(filter(None, [runs[place].name if len(runs) > 1 else "", label]))
        is_dashed = len(runs) > 1 and index > 0
        yield {
            "type": "scatter",
            "mode": "lines",
            "name": printable(label),
            "uid": f"line-{place}-{index}",
            "x": x,
            "y": y,
            "line": {"width": 2, "dash": DASHES[index % len(DASHES)] if is_dashed else "solid"},
            "hovertemplate": "%{x:.3~g}, %{y:.3~g}<extra>%{fullData.name}</extra>",
            "meta": {"colour": colour, "run": place, "at": shot.iteration, "own": True},
        }


def _matrix_figure(card: Card, place: int) -> Figure:
    """A heat map: of each true class, the share that was predicted as each class."""
    labels = card.shots[place][-1].content["labels"]
    axis: Figure = {"type": "category", "showgrid": False}
    axis |= {"dtick": 1} if len(labels) <= MOST_WRITTEN else {}
    is_long = max(map(len, labels)) > 2
    return {
        "data": [_heatmap(shot, place) for shot in card.shots[place]],
        "layout": {
            "xaxis": {"title": {"text": "predicted"}, "tickangle": 90 * is_long, **axis},
            "yaxis": {"title": {"text": "true"}, "autorange": "reversed", **axis},
            "hovermode": "closest",
            "meta": {"own": True},
        },
    }


def _heatmap(shot: Exhibit, place: int) -> Figure:
    matrix, labels = shot.content["matrix"], [printable(each) for each in shot.content["labels"]]
    sums = [sum(abs(each or 0) for each in row) or 1 for row in matrix]
    shares = [
        [round((each or 0) / total, 4) for each in row]
        for row, total in zip(matrix, sums, strict=True)
    ]
    return {
        "type": "heatmap",
        "uid": "heatmap",
        "x": labels,
        "y": labels,
        "z": shares,
        "text": [[number(each) for each in row] for row in matrix],
        "zmin": 0,
        "zmax": 1,
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
        **({"texttemplate": "%{text}"} if len(labels) <= MOST_WRITTEN else {}),
        "hovertemplate": "%{y} predicted as %{x}: %{text}, %{z:.1%} of %{y}<extra></extra>",
        "meta": {"colour": "accent", "run": place, "at": shot.iteration, "own": True},
    }
