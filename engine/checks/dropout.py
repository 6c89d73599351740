"""What a `forward` does in evaluations too, such as functional dropout: one warning a class."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from functools import reduce
from operator import attrgetter
from types import ModuleType
from typing import Any

from ..explain import warn
from ..modules import all_modules
from ..state import once_a_type
from .checked import Checked

POSITION = 2
"""The place of `training` among the arguments of torch's functions."""
OPEN = (
    "which drops values in evaluations too: add training=self.training (or training=True, if it is "
    "meant), or use nn.Dropout"
)
ATTENTION = (
    "which drops values in evaluations too: write dropout_p=... if self.training else 0.0, since "
    "this function does not look at the mode"
)
MADE = (
    "a new module in each call, whose weights nothing trains, and which is in training mode in "
    "evaluations too: make it in __init__, as self.name"
)
HOMES = {"batchnorm", "conv", "dropout", "linear", "rnn", "sparse"}
"""The files of torch.nn with modules that have weights or a mode."""


def check_dropout(run: Checked) -> None:
    """Warn of `dropout(x)` in a `forward`, and of modules made there."""
    for kind, module in {type(each): each for each in all_modules(run.objects.values())}.items():
        for call, what, rate in _always_on(kind):
            if not rate or _reaches(module, rate):
                warn(f"{kind.__name__}.forward writes {call}, {what}")


def _reaches(module: Any, rate: str) -> bool:
    """True if a rate such as `self.dropout` is above 0, and the mode of the module leaves it."""
    value = reduce(lambda owner, name: getattr(owner, name, None), rate.split(".")[1:], module)
    own: Any = type(module)
    plain = sys.modules["torch"].nn.Module
    return isinstance(value, float) and value > 0 and own.train is plain.train


@once_a_type
def _always_on(kind: type) -> tuple[tuple[str, str, str], ...]:
    """The calls in the `forward` of a class that ignore its mode, what each does, and its rate."""
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
    found = ((ast.unparse(each), *_mistake(each, forward.__globals__)) for each in calls)
    return tuple((call, what, rate) for call, what, rate in found if what)


def _mistake(call: ast.Call, names: dict[str, Any]) -> tuple[str, str]:
    """What is wrong with a call, if anything is; and its rate, if that is an attribute of self."""
    functional: Any = sys.modules["torch.nn.functional"]
    if isinstance(call.func, ast.Call):  # nn.Dropout(0.5)(x)
        kind = _named(call.func.func, names)
        room, _, home = (getattr(kind, "__module__", None) or "").rpartition(".")
        is_told = any(k.arg in (None, "track_running_stats") for k in call.func.keywords)
        is_made = room == "torch.nn.modules" and home in HOMES and kind.__name__ != "Identity"
        return MADE if is_made and not is_told else "", ""
    function = _named(call.func, names)
    name = getattr(function, "__name__", "")
    if function is None or getattr(functional, name, None) is not function:
        return "", ""
    if name == "scaled_dot_product_attention":
        given = (k.value for k in call.keywords if k.arg == "dropout_p")
        for rate in (*call.args[4:5], *given):
            if isinstance(rate, ast.Constant) and rate.value:
                return ATTENTION, ""
            if (path := ast.unparse(rate)).startswith("self.") and isinstance(rate, ast.Attribute):
                return ATTENTION, path
        return "", ""
    is_told = len(call.args) > POSITION or any(k.arg in (None, "training") for k in call.keywords)
    return OPEN if "dropout" in name and not is_told else "", ""


def _named(expression: ast.expr, names: dict[str, Any]) -> Any:
    """What `nn.Dropout` or a global names; None for what is not of torch, which may do anything."""
    root, _, path = ast.unparse(expression).partition(".")
    found = names.get(root)
    if path and not (isinstance(found, ModuleType) and found.__name__.startswith("torch")):
        return None
    try:
        found = attrgetter(path)(found) if path else found
    except AttributeError:
        return None
    return found if inspect.isroutine(found) or inspect.isclass(found) else None
