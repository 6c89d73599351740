"""`camshaft set`: ask a run for a change, and tell what it answers."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from pathlib import Path

from ...common import show, show_json
from ..report import NothingToReportError
from .ledger import FOLDER, Row, ask, ledger_of, read_ledger

PAUSE, PATIENCE = 0.1, 10.0
"""Seconds between two looks for an answer, and for all of them."""


def set_values(path: Path, settings: list[str], at: str | None, as_json: bool) -> int:
    """Ask a run to set these values, and wait for its answer; 1 if it refuses."""
    if not ledger_of(path).exists():
        raise NothingToReportError(
            f"{path}: no run can be steered here, or it has not begun yet; its engine needs "
            f"Steering({str(path)!r})"
        )
    pairs, rows = [each.partition("=") for each in settings], list[Row]()
    request = ask(path, {name: _value(text) if sign else None for name, sign, text in pairs}, at)
    end = time.monotonic() + PATIENCE
    while not rows and time.monotonic() < end:
        time.sleep(PAUSE)
        rows = [row for row in read_ledger(path) if row["request"] == request]
    if as_json:
        show_json(rows)
    elif rows:
        show(map(_told, rows))
    else:
        file = path / FOLDER / f"{request}.json"
        said = "no answer yet: the run evaluates, is over, or is not there"
        show([f"{said}. A process that runs it takes this up; to withdraw it, remove {file}"])
    return int(any("refused" in row for row in rows))


def _told(row: Row) -> str:
    if "refused" in row:
        return f"refused: {row['refused']}"
    changes = (name if value is None else f"{name}={value}" for name, value in row["set"].items())
    return f"{' '.join(changes)} after iteration {row['iteration']}"


def _value(text: str) -> int | float:
    """The number that a text is."""
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError):
        if math.isfinite(value := float(text)):
            return value
    raise ValueError(f"{text!r} is no number")
