"""A picture of an engine: the life of a batch, and the handlers at its moments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from ..events import EventEnum, Events
from .handler_rows import HandlerRow

OWN = 3
LEVELS: dict[EventEnum | None, int] = {
    **dict.fromkeys((Events.EPOCH_STARTED, Events.EPOCH_COMPLETED), 1),
    **dict.fromkeys((Events.ITERATION_STARTED, Events.ITERATION_COMPLETED, Events.SAVING), 2),
    **dict.fromkeys((Events.BACKWARD_COMPLETED, Events.GRADIENTS_READY), OWN),
    **dict.fromkeys((Events.STEP_COMPLETED, Events.STEP_SKIPPED), OWN),
}
"""The number of boxes around an event."""
BOXES = ("each epoch", "each batch", "process(state, batch)")
REMARKS: dict[EventEnum, str] = {
    Events.STEP_SKIPPED: "instead of a step that is no good",
    Events.SAVING: "if asked for; also after an epoch",
    Events.COMPLETED: "unless it failed",
    Events.FAILED: "on an exception",
    Events.CLOSED: "always",
}
KINDS = ("", "quiet", "small")
CHARACTER, LINE, GAP, INSET = 7.5, 24, 22, 14
"""Pixels: the width of a character, the height of a handler, between columns and boxes."""
STYLE = """
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  fill: #1f2328 }
.paper { fill: #ffffff; stroke: #d0d7de }
.box { fill: #0969da0a; stroke: #0969da40 }
.event { font-weight: 600 } .quiet, .small { fill: #656d76 } .small { font-size: 11px }
.wire { stroke: #afb8c1; fill: none } .dot { fill: #0969da } .idle { fill: #c4ccd4 }
.stage { font-size: 10px; font-weight: 600 }
.MEASURE { fill: #0a6c74 } .ACT { fill: #9a5b00 } .REPORT { fill: #8250df } .pill { opacity: .13 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .paper { fill: #0d1117; stroke: #30363d }
  .box { fill: #58a6ff0d; stroke: #58a6ff4d } .quiet, .small { fill: #8b949e }
  .wire { stroke: #484f58 } .dot { fill: #58a6ff } .idle { fill: #3d444d }
  .MEASURE { fill: #56d4dd } .ACT { fill: #e3b341 } .REPORT { fill: #d2a8ff } .pill { opacity: .2 }
}"""


def draw(rows: Sequence[HandlerRow]) -> str:
    """Draw these handlers at the moments of a run, and below at those of an evaluation."""
    training = [row for row in rows if row.training]
    evaluation = [row for row in rows if not row.training]
    drawing = Drawing(_columns(rows))
    drawing.run("run", training, _life(training))
    if evaluation:
        drawing.y += LINE
        heard = {row.event for row in evaluation}
        life = [event for event in _life(evaluation) if event in heard]
        drawing.run("evaluate", evaluation, life)
    return drawing.file()


def _life(rows: Iterable[HandlerRow]) -> list[EventEnum]:
    """All events in their order; events of one's own come while a batch is processed."""
    own = dict.fromkeys(row.event for row in rows if row.event not in Events)
    life: list[EventEnum] = [event for event in Events if event is not Events.SAVING]
    place = life.index(Events.ITERATION_COMPLETED)
    return [*life[:place], *own, life[place], Events.SAVING, *life[place + 1 :]]


def _name(event: EventEnum) -> tuple[str, float]:
    """The name of an event, and where it begins: further right for each box around it."""
    if event in Events:
        return event.name, INSET * (LEVELS.get(event, 0) + 2)
    return repr(event), INSET * (OWN + 2)


def _columns(rows: Sequence[HandlerRow]) -> list[float]:
    """Where the stage, the handler, its trigger and its source begin, and where the last ends."""
    names = map(_name, [*Events, *(row.event for row in rows)])
    columns = [max(x + len(name) * CHARACTER for name, x in names) + GAP]
    for column in ("STAGE", "handler", "when", "source"):
        width = max((len(getattr(row, column, "MEASURE")) for row in rows), default=8)
        columns.append(columns[-1] + width * CHARACTER + GAP)
    return columns


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

    def run(self, title: str, rows: Sequence[HandlerRow], life: Iterable[EventEnum]) -> None:
        """Draw the moments of one kind of run, box in box."""
        self.text(INSET * 1.3, self.y + 12, title, "event")
        self.y += LINE
        began: list[float] = []
        for event in [*life, None]:
            level = LEVELS.get(event, OWN if event and event not in Events else 0)
            while len(began) > level:
                self.box(len(began), began.pop())
            while len(began) < level:
                self.y += 4
                self.text(INSET * (len(began) + 2), self.y + 14, BOXES[len(began)], "small")
                began.append(self.y)
                self.y += LINE
            if event is not None:
                self.moment(event, [row for row in rows if row.event is event])

    def box(self, level: int, began: float) -> None:
        """Draw the box of a level around what was drawn since `began`."""
        x, width = INSET * level, self.width - 2 * INSET * level
        size = f'width="{width}" height="{self.y - began + 4}" rx="6"'
        self.boxes.insert(0, f'<rect class="box" x="{x}" y="{began - 2}" {size}/>')
        self.y += 12

    def moment(self, event: EventEnum, rows: Sequence[HandlerRow]) -> None:
        """Draw an event, and the handlers at its right."""
        (name, x), y, first = _name(event), self.y + 10, self.columns[0]
        if rows:
            start, end = x + 6 + len(name) * CHARACTER, y + (len(rows) - 1) * LINE
            self.shapes.append(f'<path class="wire" d="M{start} {y}H{first - 12}V{end}"/>')
        kind = "dot" if rows else "idle"
        self.shapes.append(f'<circle class="{kind}" cx="{x - 11}" cy="{y}" r="3.5"/>')
        self.text(x, y + 4, name, "event" if rows else "quiet")
        self.text(first, y + 4, "" if rows else REMARKS.get(event, ""), "small")
        for number, row in enumerate(rows):
            self.handler(row, y + number * LINE)
        self.y += max(1, len(rows)) * LINE + 4

    def handler(self, row: HandlerRow, y: float) -> None:
        """Draw a handler: its stage, name, trigger and source."""
        stage, x = row.stage.name, self.columns[0]
        self.shapes.append(f'<path class="wire" d="M{x - 12} {y}h8"/>')
        pill = f'x="{x}" y="{y - 9}" width="64" height="18" rx="9"'
        self.shapes.append(f'<rect class="pill {stage}" {pill}/>')
        self.text(x + 32, y + 3.5, stage, f'stage {stage}" text-anchor="middle')
        texts = zip(self.columns[1:], (row.handler, row.when, row.source), KINDS, strict=False)
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
