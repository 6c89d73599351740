"""What an engine would do: the table of its handlers, as text, with rich, or as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ..events import Stage
from ..signals import Signals
from .diagram import draw
from .handler_rows import HandlerRow, handler_rows


@dataclass(frozen=True)
class Description:
    """The handlers of an engine and of its evaluation, in the order in which they are called.

    `str()` is a table, `rich.print()` a coloured one, `svg()` and notebooks show a picture.
    """

    rows: tuple[HandlerRow, ...]

    def svg(self) -> str:
        """A picture of the life of a batch, its handlers beside their moments: an SVG file."""
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


def describe(training: Signals, evaluation: Signals) -> Description:
    """Look up the handlers of runs and of evaluations, in the order of the events and calls."""
    return Description((*handler_rows(training, True), *handler_rows(evaluation, False)))
