"""Text in columns, and numbers as people read them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from ..files import printable

Cell = str | int | float
WIDEST = 100
"""The largest width of a column: a longer cell shifts only the rest of its own row."""


def aligned(rows: Sequence[Sequence[Cell]]) -> list[str]:
    r"""One line a row, its columns two spaces apart; numbers are aligned to the right.

    >>> print(*aligned([("name", "size"), ("model", 12), ("train", 7)]), sep="\n")
    name   size
    model    12
    train     7
    """
    texts = [[printable(_text(cell)) for cell in row] for row in rows]
    widths = [min(WIDEST, max(map(len, column))) for column in zip(*texts, strict=True)]
    kinds = [{type(cell) for cell in column} for column in zip(*rows, strict=True)]
    places = [
        f"{'<' if kind == {str} else '>'}{width}" for kind, width in zip(kinds, widths, strict=True)
    ]
    return ["  ".join(map(format, text, places)).rstrip() for text in texts]


def _text(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell:.3f}" if isinstance(cell, float) else f"{cell:,}"


def show(lines: Iterable[str]) -> None:
    """Print lines; control characters in names are escaped, so that a terminal ignores them."""
    for line in lines:
        print(printable(line))


def show_json(value: Any) -> None:
    """Print a value for programs; numbers that JSON cannot express become text, such as "nan"."""
    print(json.dumps(_expressible(value), indent=1, allow_nan=False))


def _expressible(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _expressible(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_expressible(each) for each in value]
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def readable_size(size: int) -> str:
    """A number of bytes.

    >>> readable_size(999), readable_size(1_234_000)
    ('999 B', '1.2 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000  # type: ignore[assignment]
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def readable_metrics(metrics: dict[str, float]) -> str:
    """The names and values, in the order in which they are given.

    >>> readable_metrics({"loss": 0.25, "val/loss": float("nan")})
    'loss=0.25, val/loss=nan'
    """
    return ", ".join(f"{name}={value:.6g}" for name, value in metrics.items())
