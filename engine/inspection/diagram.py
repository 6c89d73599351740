"""A picture of an engine: the life of a batch, and the handlers at its moments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from ..events import EventEnum, Events
from .handler_rows import INSIDE, HandlerRow, Place, RunRows, life

REMARKS: dict[EventEnum, str] = {
    Events.STEP_SKIPPED: "instead of a step that is no good",
    Events.SAVING: "if asked for; also after an epoch",
    Events.COMPLETED: "unless it failed",
    Events.FAILED: "on an exception",
    Events.CLOSED: "always",
}
CHARACTER, LINE, GAP, INSET = 7.5, 24, 22, 14
"""Pixels: the width of a character, the height of a handler, between columns and boxes."""
STYLE = """
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  fill: #1f2328 }
.paper { fill: #ffffff; stroke: #d0d7de }
.box { fill: #0969da0a; stroke: #0969da40 }
.mine { fill: #bf870018 } .own { font-weight: 700 }
.event { font-weight: 600 } .quiet, .small { fill: #656d76 } .small { font-size: 11px }
.wire { stroke: #afb8c1; fill: none } .dot { fill: #0969da } .idle { fill: #c4ccd4 }
.stage { font-size: 10px; font-weight: 600 }
.MEASURE { fill: #0a6c74 } .ACT { fill: #9a5b00 } .REPORT { fill: #8250df } .pill { opacity: .13 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .paper { fill: #0d1117; stroke: #30363d }
  .mine { fill: #e3b34120 } .box { fill: #58a6ff0d; stroke: #58a6ff4d }
  .quiet, .small { fill: #8b949e }
  .wire { stroke: #484f58 } .dot { fill: #58a6ff } .idle { fill: #3d444d }
  .MEASURE { fill: #56d4dd } .ACT { fill: #e3b341 } .REPORT { fill: #d2a8ff } .pill { opacity: .2 }
}"""


def draw(runs: Sequence[tuple[RunRows, Sequence[HandlerRow]]], remark: str) -> str:
    """Draw the handlers at the moments of each kind of run, and a remark below."""
    drawing = Drawing(_columns(runs))
    for number, (run, rows) in enumerate(runs):
        drawing.y += LINE if number else 0
        drawing.run(run, life(rows, idle=not number))
    if remark:
        drawing.y += LINE
        drawing.text(INSET * 1.3, drawing.y, remark, "small")
    return drawing.file()


def _columns(runs: Sequence[tuple[RunRows, Sequence[HandlerRow]]]) -> list[float]:
    """Where the stage, the handler, its trigger and its source begin, and where the last ends."""
    rows = [row for _, found in runs for row in found]
    lefts = [(place.level, place.name) for place in life(rows, idle=True)]
    lefts += [(INSIDE, run.process) for run, _ in runs]
    columns = [max(_indent(level) + len(name) * CHARACTER for level, name in lefts) + GAP]
    for column in ("STAGE", "handler", "when", "source"):
        width = max((len(getattr(row, column, "MEASURE")) for row in rows), default=8)
        columns.append(columns[-1] + width * CHARACTER + GAP)
    longest = max((len(run.source) for run, _ in runs), default=0)
    columns[-1] = max(columns[-1], columns[-2] + longest * CHARACTER + GAP)
    return columns


def _indent(level: int) -> float:
    """Where the text of a place begins: further right for each box around it."""
    return INSET * (level + 2)


@dataclass
class Drawing:
    """The shapes so far, and how far down they reach."""

    columns: list[float]
    y: float = INSET
    boxes: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)

    @property
    def width(self) -> float:
        """The width of the picture."""
        return self.columns[-1] + 3 * INSET

    def run(self, run: RunRows, places: Iterator[Place]) -> None:
        """Draw the moments of one kind of run, box in box."""
        self.text(INSET * 1.3, self.y + 12, run.title, "event")
        self.y += LINE
        began: list[float] = []
        for place in places:
            if place.event is not None:
                self.moment(place, place.event)
            elif not place.begins:
                self.box(len(began), began.pop())
            else:
                self.y += 4
                is_inner = place.level == INSIDE - 1
                x, kind = _indent(place.level), "small"
                if is_inner:
                    kind = "own" if run.is_own else ""
                self.text(x, self.y + 14, run.process if is_inner else place.name, kind)
                self.text(self.columns[3], self.y + 14, run.source if is_inner else "", "small")
                began.append(self.y)
                self.y += LINE

    def box(self, level: int, began: float) -> None:
        """Draw the box of a level around what was drawn since `began`."""
        x, width = INSET * level, self.width - 2 * INSET * level
        size = f'width="{width}" height="{self.y - began + 4}" rx="6"'
        self.boxes.insert(0, f'<rect class="box" x="{x}" y="{began - 2}" {size}/>')
        self.y += 12

    def moment(self, place: Place, event: EventEnum) -> None:
        """Draw an event, and the handlers at its right."""
        rows, x, y, first = place.rows, _indent(place.level), self.y + 10, self.columns[0]
        if rows:
            start, end = x + 6 + len(place.name) * CHARACTER, y + (len(rows) - 1) * LINE
            self.shapes.append(f'<path class="wire" d="M{start} {y}H{first - 12}V{end}"/>')
        kind = "dot" if rows else "idle"
        self.shapes.append(f'<circle class="{kind}" cx="{x - 11}" cy="{y}" r="3.5"/>')
        self.text(x, y + 4, place.name, "event" if rows else "quiet")
        self.text(first, y + 4, "" if rows else REMARKS.get(event, ""), "small")
        for number, row in enumerate(rows):
            self.handler(row, y + number * LINE)
        self.y += max(1, len(rows)) * LINE + 4

    def handler(self, row: HandlerRow, y: float) -> None:
        """Draw a handler: its stage, name, trigger and source."""
        stage, x = row.stage.name, self.columns[0]
        if row.is_own:
            size = f'width="{self.columns[-1] - x + INSET}" height="{LINE}" rx="6"'
            self.boxes.append(f'<rect class="mine" x="{x - 6}" y="{y - LINE / 2}" {size}/>')
        self.shapes.append(f'<path class="wire" d="M{x - 12} {y}h8"/>')
        pill = f'x="{x}" y="{y - 9}" width="64" height="18" rx="9"'
        self.shapes.append(f'<rect class="pill {stage}" {pill}/>')
        self.text(x + 32, y + 3.5, stage, f'stage {stage}" text-anchor="middle')
        kinds = ("own" if row.is_own else "", "quiet", "small")
        texts = zip(self.columns[1:], (row.handler, row.when, row.source), kinds, strict=False)
        for column, text, kind in texts:
            self.text(column, y + 4, text, kind)

    def text(self, x: float, y: float, text: str, kind: str) -> None:
        """Write a line of text."""
        plain = "".join(each if each.isprintable() else "?" for each in text)
        if plain:
            self.shapes.append(f'<text class="{kind}" x="{x}" y="{y}">{escape(plain)}</text>')

    def file(self) -> str:
        """The whole file."""
        size = f'width="{self.width}" height="{self.y + INSET}"'
        paper = f'<rect class="paper" x=".5" y=".5" rx="8" {size}/>'
        shapes = "\n".join([paper, *self.boxes, *self.shapes])
        edge = f"0 0 {self.width + 1} {self.y + INSET + 1}"
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{edge}" {size}>'
        return f"{head}\n<style>{STYLE}\n</style>\n{shapes}\n</svg>\n"
