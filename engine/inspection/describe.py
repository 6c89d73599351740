"""What an engine would do: the table of its handlers, as text, with rich, or as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..events import Stage
from .diagram import draw
from .handler_rows import INSIDE, HandlerRow, Place, RunRows, life

COLOURS = {Stage.MEASURE: "cyan", Stage.ACT: "yellow", Stage.REPORT: "magenta"}
OWN = "▸"
"""Stands before what the user has written."""


class Line(NamedTuple):
    """A line of the table: an event or a box at the left, a handler at the right."""

    left: str
    stage: Stage | None = None
    handler: str = ""
    when: str = ""
    source: str = ""
    is_own: bool = False
    """True for what the user has written."""

    @property
    def cells(self) -> tuple[str, ...]:
        """The columns as text."""
        stage = "" if self.stage is None else self.stage.name
        mark = OWN if self.is_own else ""
        return self.left, mark, stage, self.handler, self.when, self.source


@dataclass(frozen=True)
class Description:
    """The functions and handlers of an engine and of its evaluation, in the order of the calls.

    `str()` is a table, `rich.print()` a coloured one, `svg()` and notebooks show a picture.
    """

    parts: tuple[RunRows, ...]
    all: bool = False
    """True to show the calls that fold, too, and where all of them are written."""

    @property
    def rows(self) -> tuple[HandlerRow, ...]:
        """All handlers, those that fold included."""
        return tuple(row for run in self.parts for row in run.rows)

    @property
    def shown(self) -> list[tuple[RunRows, tuple[HandlerRow, ...]]]:
        """The kinds of runs to show, and the rows of each."""
        found = [(run, run.rows if self.all else run.folded) for run in self.parts]
        return [(run, rows) for run, rows in found if rows or run is self.parts[0]]

    @property
    def remark(self) -> str:
        """How many calls are folded, and how to see them; empty if there are none."""
        count = 0 if self.all else sum(row.is_folded for row in self.rows)
        calls = "1 more call" if count == 1 else f"{count} more calls"
        by = "by which handlers begin, count, check and end"
        return f"{calls}, {by}: describe(all=True)" if count else ""

    def svg(self) -> str:
        """A picture of the life of a batch, its handlers beside their moments: an SVG file."""
        return draw(self.shown, self.remark)

    _repr_svg_ = svg

    def __str__(self) -> str:
        """In the order of a run, the stage, name, conditions and source of each handler."""
        lines = [line.cells for run, rows in self.shown for line in _lines(run, rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = [" ".join(map(str.ljust, cells, widths)).rstrip() for cells in lines]
        return "\n".join([*padded, *([self.remark] if self.remark else [])])

    def __rich__(self) -> Any:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, caption=self.remark or None, caption_justify="left")
        for column in ("event", "", "stage", "handler", "when", "source"):
            table.add_column(column, style="dim" if column == "source" else "", no_wrap=True)
        for run, rows in self.shown:
            for line in _lines(run, rows):
                left, mark, stage, *others = map(Text, line.cells)
                stage.stylize("" if line.stage is None else COLOURS[line.stage])
                row = (left, mark, stage, *others)
                table.add_row(*row, style="bold" if line.is_own else "")
            table.add_section()
        return table


def _lines(run: RunRows, rows: Sequence[HandlerRow]) -> Iterator[Line]:
    yield Line(run.title)
    for place in life(rows):
        indent = " " + "│ " * place.level
        if place.begins and place.level == INSIDE - 1:
            yield Line(f"{indent}┌ {run.process}", source=run.source, is_own=run.is_own)
        elif place.event is None:
            yield Line(f"{indent}{f'┌ {place.name}' if place.begins else '└'}")
        else:
            yield from _handlers(place, indent + place.name, indent)


def _handlers(place: Place, left: str, below: str) -> Iterator[Line]:
    for number, row in enumerate(place.rows):
        cells = row.stage, row.handler, row.when, row.source, row.is_own
        yield Line(below if number else left, *cells)
