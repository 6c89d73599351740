"""The handlers that ignite's engine wraps: what they are, and what their filters say."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from ..signals import label


def unwrapped(handler: Any) -> Any:
    """The function that was attached, if this is its wrapper with a filter."""
    parent = getattr(handler, "__dict__", {}).get("_parent")
    return handler if parent is None else parent()


def numbers(condition: Callable[..., Any]) -> dict[str, Any]:
    """The numbers in a filter that ignite made: `every`, `once`, `before`, `after`, as it has them.

    ignite's filter with `every` alone has that alone; its other ones have `before` and `after`,
    given or not. A filter of the script has none.
    """
    code = getattr(condition, "__code__", None)
    if code is None or not str(getattr(condition, "__module__", "")).startswith("ignite."):
        return {}
    cells = getattr(condition, "__closure__", None) or ()
    return {n.rstrip("_"): c.cell_contents for n, c in zip(code.co_freevars, cells, strict=True)}


def words(condition: Callable[..., Any]) -> str:
    """A filter as the script has it: `every=3, after=10`."""
    given = numbers(condition)
    if not given:
        return f"event_filter={label(condition)}"
    if len(given.get("once", ())) == 1:
        given["once"] = given["once"][0]
    if given.get("before") == inf:
        del given["before"]
    elif given.get("after") == 0:
        del given["after"]
    names = (name for name in ("every", "once", "after", "before") if name in given)
    return ", ".join(f"{name}={given[name]}" for name in names)
