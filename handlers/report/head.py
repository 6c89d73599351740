"""The head of a page about one run: whether it has finished, why, and how good it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ..common import readable_size
from .charts import LEARNING, Chart
from .facts import RunFacts, number_in
from .markup import Html, breakable, counted, duration, joined, lines, number, tag
from .timeline import outcome, tell_outcome

LOWER_IS_BETTER = re.compile("loss|error|perplexity|mse|mae|rmse|nll", re.IGNORECASE)


def head(run: RunFacts, drawn: Sequence[Chart]) -> Html:
    """What a person wants first of one run."""
    tiles = [
        tag("div", tag("dt", breakable(name)), tag("dd", value), tag("dd", note, class_="note"))
        for name, value, note in _key_figures(run, drawn)
    ]
    return joined([_summary(run), tag("dl", *tiles[:8], id="figures")])


def status(runs: Sequence[RunFacts]) -> str:
    """How the runs are, in a few words, such as `2 finished, 1 running`."""
    words = Counter(outcome(run.parts[-1]) if run.parts else "no journal" for run in runs)
    if len(words) == 1:
        return next(iter(words))
    return ", ".join(f"{count} {word}" for word, count in words.items())


def is_over(runs: Sequence[RunFacts]) -> bool:
    """True if the journals of all runs tell of an end."""
    return all(run.parts and not run.parts[-1].is_open for run in runs)


def work(run: RunFacts) -> float:
    """The seconds in which a process was at work."""
    return sum(part.seconds for part in run.parts)


def _summary(run: RunFacts) -> Html:
    if not run.parts:
        to_add = "No journal tells when it ran. Add Journal(directory) to the handlers."
        return tag("p", to_add, id="summary")
    part, count = run.parts[-1], len(run.parts)
    reason, more = part.reason, Html()
    if part.end == "failed" or len(reason) > 80:
        reason, more = "", tag("p", lines(part.reason), class_="reason", id="reason")
    epochs = number_in(run.limits, "max_epochs")
    told = [
        f"epoch {number(part.last['epoch'])}{f' of {number(epochs)}' if epochs else ''}",
        counted(part.last["iteration"], "iteration"),
        *([counted(part.last["step"], "step")] if part.last["step"] else []),
        f"{duration(work(run))}{f' in {count} parts' if count > 1 else ''}",
    ]
    text = f"{f' ({reason})' if reason else ''} · {' · '.join(told)}"
    summary = tag("p", tell_outcome(part), text, id="summary")
    return joined([summary, _progress(run), more])


def _progress(run: RunFacts) -> Html:
    """How far a run is that goes on, and how long it may still take."""
    part, total = run.parts[-1], _total(run)
    if part.end not in ("running", "silent") or not total:
        return Html()
    done, began = part.last["iteration"], part.first["iteration"]
    left = ""
    if done > began and total > done:
        left = (
            f", about {duration((total - done) * part.seconds / (done - began), whole=True)} left"
        )
    bar = tag("progress", max=total, value=min(done, total), aria_label="progress of the run")
    return tag("p", bar, f"{min(done / total, 1):.0%}{left}", class_="progress")


def _total(run: RunFacts) -> float:
    """The iterations that a run is to have; 0 if nothing tells."""
    epochs, length = (number_in(run.limits, name) for name in ("max_epochs", "epoch_length"))
    return number_in(run.limits, "max_iterations") or epochs * length


def key_metrics(drawn: Sequence[Chart]) -> list[str]:
    """What evaluations measured, or else the losses."""
    learning = [chart for chart in drawn if chart.heading == LEARNING]
    measured = [name for chart in learning for name in chart.validated]
    return measured or [name for chart in learning for name in chart.metrics]


def better(name: str) -> str:
    """Which extreme of a metric is its best value."""
    return "lowest" if LOWER_IS_BETTER.search(name) else "highest"


def _key_figures(run: RunFacts, drawn: Sequence[Chart]) -> Iterator[tuple[str, str, str]]:
    for name in key_metrics(drawn):
        if point := run.curves[name][which := better(name)]:
            at = f"iteration {number(point['iteration'])}, epoch {number(point['epoch'])}"
            yield f"{name}, {which}", number(point["value"]), at
    for name in ("loss", "lr"):
        if name in run.curves:
            point = run.curves[name]["last"]
            at = f"iteration {number(point['iteration'])}"
            yield f"{name}, last", number(point["value"]), at
    done = sum(part.last["iteration"] - part.first["iteration"] for part in run.parts)
    if done and (busy := work(run)):
        yield "Pace", number(done / busy), "iterations per second"
    if found := run.checkpoints:
        whole = [each["size"] for each in found if each["problem"] is None]
        broken = len(found) - len(whole)
        note = f"{broken} broken" if broken else readable_size(sum(whole))
        yield "Checkpoints", str(len(found)), note
