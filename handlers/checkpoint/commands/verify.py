"""`camshaft verify`: reads everything."""

from __future__ import annotations

from pathlib import Path

from ...common import aligned, show
from .found import look


def verify(path: Path) -> int:
    """Say of each checkpoint whether it is whole; 1 if one is broken."""
    found = look(path, thoroughly=True)
    rows = [
        (each.path.name, "whole" if each.problem is None else f"broken: {each.problem}")
        for each in found
    ]
    show(aligned(rows))
    return int(any(each.problem is not None for each in found))
