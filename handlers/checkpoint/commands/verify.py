"""`camshaft verify`: reads every file."""

from __future__ import annotations

from pathlib import Path

from ...common.table import aligned, show
from ..directory import look


def verify(path: Path) -> int:
    """Tell for each checkpoint whether it is whole; 1 if one is broken."""
    found = look(path, thoroughly=True)
    rows = [
        (each.path.name, "whole" if each.problem is None else f"broken: {each.problem}")
        for each in found
    ]
    show(aligned(rows))
    return int(any(each.problem is not None for each in found))
