"""Rows of metrics as lines of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from ..common import ConfusionMatrix, Curve, Histogram, Medium, PRCurve, Text
from ..files import lines_from_end
from .files import LogsToFile, RowFile
from .rows import Row

MOST_POINTS = 200
"""Points of a line that are written, at even distances, with its first and last."""


def _plain(value: Any) -> Any:
    """Numbers, or the text for them: Python would write NaN without quotes, which is not JSON."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if math.isfinite(value) else json.dumps(value)


def _curve(curve: Curve) -> dict[str, Any]:
    x, y = curve.x, curve.y
    if (last := x.shape[1] - 1) >= MOST_POINTS:
        kept = [round(at * last / (MOST_POINTS - 1)) for at in range(MOST_POINTS)]
        x, y = x[:, kept], y[:, kept]
    points = {"x": _plain(x.tolist()), "y": _plain(y.tolist())}
    return {**points, "axes": curve.axes, "labels": curve.labels}


FORMS: dict[type[Medium], Callable[[Any], dict[str, Any]]] = {
    Histogram: lambda each: {
        "counts": _plain(each.counts.tolist()),
        "edges": _plain(each.edges.tolist()),
    },
    Text: lambda each: {"text": each.text},
    Curve: _curve,
    PRCurve: lambda each: _curve(each.curve),
    ConfusionMatrix: lambda each: {
        "matrix": _plain(each.matrix.tolist()),
        "labels": each.labels,
    },
}
"""What a line of JSON holds of the media that it can hold."""


class JSONFile(RowFile):
    """One file of rows."""

    kind = "JSONLines"

    def line_of(self, row: Row) -> str:
        """A row as one line."""
        values: dict[str, Any] = {**row.metrics}
        if not all(map(math.isfinite, values.values())):
            values = {name: _plain(value) for name, value in values.items()}
        for name, medium in row.media.items():
            if type(medium) in FORMS:
                values[name] = FORMS[type(medium)](medium)
        clocks = row.clocks
        return json.dumps(clocks | values | clocks, allow_nan=False) + "\n"

    def before(self, first: int) -> tuple[int, int]:
        """The bytes of the rows before iteration `first`, and the iteration of the last of them.

        A kill may have torn the last line.
        """
        found_row = False
        with self.reading() as file:
            for place, line in lines_from_end(file):
                iteration = _iteration(line.decode(errors="replace"))
                if iteration is not None and iteration < first:
                    return place + len(line), iteration
                if iteration is None and found_row:
                    raise self.no_row(place)
                found_row = found_row or iteration is not None
        return 0, 0


@dataclass(frozen=True, eq=False)
class JSONLines(LogsToFile):
    """Write metrics to a file, one JSON object a line: the clocks, and what is new since the last.

    Each row goes to the file as soon as it is written, so a kill loses at most the row in
    progress. A resumed run drops the rows past the point it is resumed from; a new run moves an
    earlier run's file to `<path>.1`, or the next number that is free. Values that are not finite
    are written as `"NaN"`, `"Infinity"` or `"-Infinity"`, which every JSON reader accepts and
    `float()` turns back. A `Histogram` is an object with `counts` and `edges`, a `Text` one with
    `text`, a `Curve` or `PRCurve` one with up to 200 points of each line as `x` and `y`, a
    `ConfusionMatrix` one with `matrix`. Other metrics that are more than one number are left out,
    and so is a metric with the name of a clock.

    Args:
        path: The file; its folder is made if there is none.
        when: When to write a row, if there is anything new.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from camshaft import Engine, Events
    >>> path = Path(mkdtemp(), "rows.jsonl")
    >>> def train_step(state, batch):
    ...     state.metrics["loss"] = 1 / batch
    >>> engine = Engine(train_step, JSONLines(path, when=Events.ITERATION_COMPLETED))
    >>> state = engine.run([1, 2], max_epochs=1)
    >>> print(path.read_text(), end="")
    {"iteration": 1, "step": 0, "epoch": 1, "loss": 1.0}
    {"iteration": 2, "step": 0, "epoch": 1, "loss": 0.5}
    """

    usual_name = "rows.jsonl"
    opens: ClassVar[type[RowFile]] = JSONFile
    shown: ClassVar[tuple[type[Medium], ...]] = tuple(FORMS)


def _iteration(line: str) -> int | None:
    """The iteration of a row; None if the line is incomplete or not a row."""
    try:
        return int(json.loads(line)["iteration"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
