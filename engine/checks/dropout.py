"""Dropout by torch's functions, which evaluations cannot switch off: one warning a class."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from operator import attrgetter
from typing import Any

from ..explain import warn
from ..modules import all_modules
from ..state import once_a_type
from .checked import Checked

POSITION = 2
"""The place of `training` among the arguments of torch's functions."""


def check_dropout(run: Checked) -> None:
    """Warn of `dropout(x)` in a `forward`, which drops values in evaluations too."""
    for kind in dict.fromkeys(map(type, all_modules(run.objects.values()))):
        for call in _always_on(kind):
            warn(
                f"{kind.__name__}.forward writes {call}, which drops values in evaluations too: "
                "add training=self.training (or training=True, if it is meant), or use nn.Dropout"
            )


@once_a_type
def _always_on(kind: type) -> tuple[str, ...]:
    """The calls of functional dropout in the `forward` of a class that do not say when."""
    forward: Any = inspect.unwrap(getattr(kind, "forward", None))  # type: ignore[arg-type]
    if (getattr(forward, "__module__", None) or "").startswith("torch."):
        return ()
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(forward)))
    except (OSError, TypeError, SyntaxError):  # there is no source, or it is no function
        return ()
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    given = [one for each in calls for one in (*each.args, *(k.value for k in each.keywords))]
    for each in ast.walk(tree):
        if isinstance(each, ast.Attribute) and each.attr == "training" and each not in given:
            return ()  # it looks by itself, such as `if self.training:`
    return tuple(ast.unparse(each) for each in calls if _is_open(each, forward.__globals__))


def _is_open(call: ast.Call, names: dict[str, Any]) -> bool:
    """True for a call of torch.nn.functional's dropouts without `training`."""
    is_told = len(call.args) > POSITION or any(k.arg in (None, "training") for k in call.keywords)
    root, _, path = ast.unparse(call.func).partition(".")
    if is_told or "drop" not in (path or root):  # an attribute of another global may do anything
        return False
    try:
        function = attrgetter(path)(names[root]) if path else names[root]
    except (KeyError, AttributeError):
        return False
    functional: Any = sys.modules["torch.nn.functional"]
    return "dropout" in (name := getattr(function, "__name__", "")) and (
        getattr(functional, name, None) is function
    )
