"""The handlers that ignite's engine wraps: what they are, and what their filters say."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any


def unwrapped(handler: Any) -> Any:
    """The function that was attached, if this is its wrapper with a filter."""
    parent = getattr(handler, "__dict__", {}).get("_parent")
    return handler if parent is None else parent()


def conditions(condition: Callable[..., Any]) -> dict[str, Any]:
    """The numbers in a filter of ignite: `every`, `once`, `before`, `after`; of others nothing."""
    code = getattr(condition, "__code__", None)
    if code is None or not str(getattr(condition, "__module__", "")).startswith("ignite."):
        return {}
    cells = getattr(condition, "__closure__", None) or ()
    found = {n.rstrip("_"): c.cell_contents for n, c in zip(code.co_freevars, cells, strict=True)}
    return {name: each for name, each in found.items() if each not in (0, inf)}
