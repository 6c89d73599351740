"""The sections of a page as HTML: its head, its legend, the places of its charts, its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from .charts import LEARNING, RATE_AND_PACE, Chart
from .comparison import comparison
from .facts import RunFacts
from .head import head
from .legend import legend
from .markup import Html, breakable, counted, joined, number, tag
from .media import Address, histograms, images
from .tables import best, checkpoints, empty, handlers, named, parts

FEW = 12
"""Charts under one heading that are open at first."""
TITLES = {
    "best": "Best rows",
    "config": "Configuration",
    "checkpoints": "Checkpoints",
    "timeline": "Timeline",
    "environment": "Environment",
    "handlers": "Handlers",
}
NO_JOURNAL = "Nothing tells {}. Add Journal(directory) to the handlers."
NO_CONFIG = "Nothing tells its configuration: Journal(directory, config=…) does."


def sections(
    runs: Sequence[RunFacts], drawn: Sequence[Chart], address: Address, *, is_live: bool
) -> dict[str, Html]:
    """Each section by its name; only a waiting text until a run that is watched begins."""
    is_alone = len(runs) == 1
    differ = any(run.config != runs[0].config for run in runs)
    tables = {
        "best": best(runs, drawn) or empty("No metric was measured."),
        "config": named("config", runs) or empty(NO_CONFIG),
        "checkpoints": _each_run(runs, checkpoints),
        "timeline": _timeline(runs) or empty(NO_JOURNAL.format("when it started and stopped")),
        "environment": named("environment", runs) or empty(NO_JOURNAL.format("where it ran")),
        "handlers": _each_run(runs, handlers),
    }
    is_open = {
        "best": is_alone,
        "config": is_alone or differ,
        "checkpoints": is_alone,
        "timeline": is_alone and len(runs[0].parts) > 1,
    }
    found = {
        "head": joined(
            [head(runs[0], drawn) if is_alone else comparison(runs, drawn), _notes_of(runs)]
        ),
        "legend": legend(runs, drawn),
        "charts": _charts(runs, drawn, address),
    } | {
        key: fold(key, TITLES[key], content, is_open=is_open.get(key, False))
        for key, content in tables.items()
    }
    if is_live and not any(run.is_begun for run in runs):
        text = "Waiting for the run to begin. This page goes on by itself."
        return dict.fromkeys(found, Html()) | {"charts": tag("p", text, class_="empty wait")}
    return found


def _notes_of(runs: Sequence[RunFacts]) -> Html:
    """What of the files is not shown."""
    told = [tag("li", f"{run.name}: {note}") for run in runs for note in run.notes]
    return tag("ul", *told, class_="left-out") if told else Html()


def fold(key: str, title: str, content: Html, *, is_open: bool = True, note: str = "") -> Html:
    """A section that can be folded; the page remembers by its key whether it is."""
    line = tag("summary", tag("h2", title), tag("span", note, class_="count"))
    return tag("details", line, content, data_fold=key, **({"open": ""} if is_open else {}))


def _each_run(runs: Sequence[RunFacts], make: Callable[[RunFacts], Html]) -> Html:
    if len(runs) == 1:
        return make(runs[0])
    return joined(each for run in runs for each in (tag("h3", run.name, class_="run"), make(run)))


def _charts(runs: Sequence[RunFacts], drawn: Sequence[Chart], address: Address) -> Html:
    """The charts under their headings, with the images after those of the learning."""
    folds: list[Html] = []
    if not drawn:
        to_add = 'Add JSONLines("…/rows.jsonl") to the handlers, in this directory.'
        folds.append(empty(f"There are no rows of metrics. {to_add}"))
    for heading, charts in groupby(drawn, lambda chart: chart.heading):
        cards = [_curves_card(chart, runs) for chart in charts]
        folds.append(_grid(heading, cards, "large" if heading == LEARNING else ""))
    is_learning = bool(drawn) and drawn[0].heading == LEARNING
    if pictures := images(runs, address):
        folds.insert(int(is_learning), _grid("Images", pictures, "small"))
    if spreads := histograms(runs):
        folds.append(_grid("Histograms", spreads, ""))
    return joined(folds)


def _grid(heading: str, cards: Sequence[Html], kind: str) -> Html:
    content = tag("div", *cards, class_=f"grid {kind}")
    is_open = len(cards) <= FEW or heading in (LEARNING, RATE_AND_PACE)
    note = str(len(cards)) if len(cards) > 2 else ""
    return fold(f"charts {heading}", heading, content, is_open=is_open, note=note)


def _curves_card(chart: Chart, runs: Sequence[RunFacts]) -> Html:
    several = len(runs) > 1
    found = [
        (f"{run.name}: {name}" if several else name, run.curves[name])
        for run in runs
        for name in chart.metrics
        if name in run.curves
    ]
    words = f"Chart of {' and '.join(chart.metrics)}."
    for name, curve in found:
        points = [which for which in ("last", "lowest", "highest") if curve[which]]
        told = ", ".join(f"{which} {number(curve[which]['value'])}" for which in points)
        words += f" {name}: {told}."
    title: list[str] = [tag("h3", breakable(chart.title))]
    if chart.metrics != [chart.title]:
        title.append(tag("span", breakable(", ".join(chart.metrics)), class_="metrics"))
    return tag(
        "figure",
        tag("figcaption", *title),
        tag("div", class_="chart", role="img", aria_label=words, data_figure=chart.key),
        tag("p", class_="notes same"),
        tag("p", *_notes(found), class_="notes"),
        class_="card",
        data_metrics=" ".join([chart.title, *chart.metrics]),
    )


def _notes(found: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """What curves do not show by themselves."""
    thinned = [(name, curve) for name, curve in found if "means" in curve]
    if thinned:
        name = thinned[0][0] if len(thinned) == 1 else counted(len(thinned), "curve")
        rows = max(curve["count"] for _, curve in thinned)
        points = max(len(curve["x"]) for _, curve in thinned)
        most = "" if len(thinned) == 1 else "up to "
        yield f"{name}: {most}{number(rows)} rows, drawn as {most}{number(points)} points "
        yield "that keep every peak. "
    for name, curve in found:
        if odd := curve["odd"]["count"]:
            yield f"{name}: {counted(odd, 'value')} not a number (\N{MULTIPLICATION SIGN}). "
    low = [name for name, curve in found if curve["lowest"] and curve["lowest"]["value"] <= 0]
    if low:
        text = "a logarithmic axis has no place for values that are not above zero. "
        yield tag("span", f"{', '.join(low)}: {text}", class_="log-y")


def _timeline(runs: Sequence[RunFacts]) -> Html:
    if not any(run.parts for run in runs):
        return Html()
    words = "Timeline of the parts of the run; the table below says the same."
    style = f"height: {min(30, 7 + 2 * len(runs)):g}rem"
    place = tag(
        "div", class_="chart", role="img", aria_label=words, data_figure="timeline", style=style
    )
    card = tag("figure", tag("figcaption", tag("h3", "By the clock")), place, class_="card")
    return joined([card, _each_run(runs, parts)])
