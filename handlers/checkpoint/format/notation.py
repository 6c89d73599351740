"""Claims as text: reads what one writes for `keep`, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any

from .retention import Keep, best, every, latest

CLAIMS: dict[str, Callable[..., Keep]] = {"latest": latest, "best": best, "every": every}
LONGEST = 10_000
"""A longer text is no claim, and Python's parser would have too much to do with it."""


def keep_of(text: str) -> Keep:
    """The claims of a text, such as that of a manifest: names and literals are all it may hold.

    Raises:
        ValueError: The text is something else; the message says what it should be.

    >>> keep_of("latest(2) | best(1, 'val/loss')")
    best(1, 'val/loss', mode='min') | latest(2)
    """
    try:
        if len(text) > LONGEST:
            raise ValueError(f"it has {len(text)} characters")
        return reduce(or_, map(_claim, _joined(ast.parse(text.strip(), mode="eval").body)))
    except (SyntaxError, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(
            f"keep={text[:80]!r} is made of something else than latest(...), best(...), every(...) "
            f"and |, as in \"latest(2) | best(1, 'val/loss')\": {error}"
        ) from error


def _joined(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_joined(node.left), *_joined(node.right)]
    return [node]


def _claim(node: ast.expr) -> Keep:
    if not (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLAIMS
    ):
        raise ValueError(f"{ast.unparse(node)!r} is none of {', '.join(CLAIMS)}")
    values = [ast.literal_eval(each) for each in node.args]
    named: dict[str, Any] = {}
    for each in node.keywords:
        if each.arg is None:
            raise ValueError("** has no place here")
        named[each.arg] = ast.literal_eval(each.value)
    return CLAIMS[node.func.id](*values, **named)
