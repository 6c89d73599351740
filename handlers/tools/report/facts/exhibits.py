"""What rows hold of texts, curves and confusion matrices, as `JSONLines` wrote them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from .....engine.state import as_float
from ....files import budget


@dataclass(frozen=True, eq=False)
class Exhibit:
    """A text, a curve or a confusion matrix in one row."""

    iteration: int
    kind: str
    content: dict[str, Any]
    """`text`; or `x`, `y`, `axes` and `labels`; or `matrix` and `labels`."""
    size: int
    """In characters, about."""


class TooLargeError(ValueError):
    """An exhibit is larger than a page shows."""


def exhibit_of(iteration: int, value: Any) -> Exhibit | None:
    """What `JSONLines` wrote of a medium; None for anything else."""
    if not isinstance(value, dict):
        return None
    if isinstance(text := value.get("text"), str):
        return Exhibit(iteration, "text", {"text": _shortened(text)}, len(text))
    for kind, read in (("curve", _curve), ("matrix", _matrix)):
        if (content := read(value)) is not None:
            return Exhibit(iteration, kind, content, len(json.dumps(content)))
    return None


def _shortened(text: str) -> str:
    more = len(text) - budget.LONGEST_TEXT
    return text if more <= 0 else f"{text[:-more]}\n... ({more:,} more characters)"


def _curve(value: dict[str, Any]) -> dict[str, Any] | None:
    x, y, axes = _lines(value.get("x")), _lines(value.get("y")), value.get("axes")
    if not x or not y or list(map(len, x)) != list(map(len, y)):
        return None
    if not isinstance(axes, list) or len(axes) != 2:
        return None
    names = [str(each)[: budget.LONGEST_NAME] for each in axes]
    return {"x": x, "y": y, "axes": names, "labels": _labels(value, len(x))}


def _matrix(value: dict[str, Any]) -> dict[str, Any] | None:
    matrix = _lines(value.get("matrix"))
    if not matrix or {*map(len, matrix)} != {len(matrix)}:
        return None
    labels = _labels(value, len(matrix)) or list(map(str, range(len(matrix))))
    return {"matrix": matrix, "labels": labels}


def _labels(value: dict[str, Any], count: int) -> list[str] | None:
    labels = value.get("labels")
    if not isinstance(labels, list) or len(labels) != count:
        return None
    return [str(each)[: budget.LONGEST_NAME] for each in labels]


def _lines(value: Any) -> list[list[float | None]] | None:
    """A list of lists of numbers, with None for what is not finite; None for anything else."""
    if not isinstance(value, list) or not all(isinstance(line, list) for line in value):
        return None
    if sum(map(len, value)) > budget.MOST_IN_MEDIUM:
        raise TooLargeError
    return [[_finite(each) for each in line] for line in value]


def _finite(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = as_float(value)
    return number if math.isfinite(number) else None
