"""What an engine would do: the table of its handlers, as text, with rich, or as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ..events import EventEnum, Events, Stage, Trigger
from ..signals import Subscription, label, source

if TYPE_CHECKING:
    from ..engine import Engine


class Row(NamedTuple):
    """One handler in one moment."""

    event: EventEnum
    stage: Stage
    handler: str
    trigger: Trigger
    source: str
    training: bool = True
    """False in an evaluation."""

    @property
    def moment(self) -> str:
        """The event, and whether it is one of an evaluation."""
        return f"{'' if self.training else 'evaluation, '}{self.event!r}"

    @property
    def when(self) -> str:
        """The conditions on this event: `"every=2"`, `"last"`, or none for each occurrence."""
        if not (clauses := self.trigger.clauses_on(self.event)):
            return "last"
        texts = sorted(repr(replace(clause, last=False)) for clause in clauses)
        return " | ".join(text.removeprefix(repr(self.event))[1:-1] for text in texts)

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """What is told of the handler."""
        return self.stage.name, self.handler, repr(self.trigger), self.source


@dataclass(frozen=True)
class Description:
    """The handlers of an engine and of its evaluation, in the order in which they are called.

    `str()` is a table, `rich.print()` a coloured one, `svg()` and notebooks show a picture.
    """

    rows: tuple[Row, ...]

    def svg(self) -> str:
        """A picture of the life of a batch, its handlers beside their moments: an SVG file."""
        from .diagram import draw

        return draw(self.rows)

    _repr_svg_ = svg

    def __str__(self) -> str:
        """For each event, the stage, name, trigger and source of its handlers."""
        table = [row.cells for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines: list[str] = []
        for moment, rows in groupby(self.rows, lambda row: row.moment):
            lines.append(moment)
            padded = (map(str.ljust, row.cells, widths) for row in rows)
            lines += [f"  {'  '.join(cells)}".rstrip() for cells in padded]
        return "\n".join(lines) or "no handlers"

    def __rich__(self) -> Any:
        """The table for `rich.print` and rich's consoles."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD)
        for column in ("stage", "handler", "when", "source"):
            table.add_column(column, style="dim" if column == "source" else "")
        for moment, rows in groupby(self.rows, lambda row: row.moment):
            table.add_row("", Text(moment, style="bold"))
            for row in rows:
                stage = Text(row.stage.name, style=COLOURS[row.stage])
                table.add_row(stage, *map(Text, (row.handler, row.when, row.source)))
            table.add_section()
        return table


COLOURS = {Stage.MEASURE: "cyan", Stage.ACT: "yellow", Stage.REPORT: "magenta"}


def describe(engine: Engine[Any, Any]) -> Description:
    """Look up all handlers, in the order of the events and then of the calls."""
    evaluation = vars(engine).get("evaluation")  # do not make one to say that it has no handlers
    return Description((*_rows(engine, True), *(_rows(evaluation, False) if evaluation else ())))


def _rows(engine: Engine[Any, Any], training: bool) -> Iterator[Row]:
    own = [event for event in engine.signals if not isinstance(event, Events)]
    for event in [*Events, *own]:
        if event not in engine.signals:
            continue
        for each in engine.signals[event].receivers_for(None):
            stage, trigger = Stage.ACT, Trigger.of(event)
            if isinstance(each, Subscription):
                stage, trigger = each.stage, each.trigger
            yield Row(event, stage, label(each), trigger, source(each), training)
