"""Functions: what they are called, whose they are, where they are written, what they take."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from ..events import EventEnum, Stage, Trigger
from ..state import Batch, Output, State

PACKAGE = __name__.partition(".")[0]
ROOT = Path(__file__).parents[2]
ROOMS = (str(ROOT / "engine"), str(ROOT / "handlers"), "<string>")  # a dataclass's __init__
"""The beginnings of the package's file paths."""
LIBRARIES = (*ROOMS, str(Path(os.__file__).parent), "<frozen")
"""Beginnings of the file paths of code that is not the script's; so is what pip installs."""

Process = Callable[[State[Batch, Output], Batch], Output]
Receiver = Callable[[State[Any, Any]], object]
Watch = Callable[[EventEnum, Receiver, Receiver], Receiver]
"""Returns, for an event, a receiver and its function, the function to call instead."""


@dataclass(eq=False)
class Subscription:
    """One call of `engine.on`: a function, when it is called and in which stage."""

    function: Receiver
    trigger: Trigger
    stage: Stage = Stage.ACT
    name: str = ""
    """Unique in its engine."""
    local: bool = False
    """True if other ranks do not have it, and so cannot agree on anything with it."""
    handler: str = ""
    """The name of the handler whose method the function is."""

    def __call__(self, state: State[Any, Any]) -> object:
        """Call the function, as a plain receiver of a signal."""
        return self.function(state)


def label(function: Callable[..., Any]) -> str:
    """The name of a receiver: its name in the engine, or its qualified name in the source."""
    inner = getattr(function, "func", function)  # functools.partial has no name of its own
    own = getattr(inner, "name", "") if isinstance(inner, Subscription) else ""
    name = own or getattr(inner, "__qualname__", type(inner).__qualname__)
    return str(name).rpartition("<locals>.")[2]


def identity(function: Any) -> Hashable:
    """A key that is equal for a function, its `partial`s, its decorated form, and equal methods.

    >>> def step(state, batch, model):
    ...     pass
    >>> identity(partial(step, model=None)) == identity(step)
    True
    """
    while (owner := getattr(function, "__self__", None)) is None:
        if isinstance(function, partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            return id(function)
    return id(owner), getattr(function, "__name__", "")


def source(function: Callable[..., Any]) -> str:
    """Where a function, or the class of a callable object, is written: file and line."""
    inner = function.function if isinstance(function, Subscription) else function
    inner = inspect.unwrap(getattr(inner, "func", inner))
    for candidate in (inner, vars(type(inner)).get("__call__")):
        if code := getattr(candidate, "__code__", None):
            return f"{Path(code.co_filename).name}:{code.co_firstlineno}"
    return "built in"


def package_of(defined: Any) -> str:
    """The package of a class or a function; empty if it does not tell.

    >>> package_of(Path)
    'pathlib'
    """
    return str(getattr(defined, "__module__", "")).partition(".")[0]


def is_by_user(defined: Any) -> bool:
    """True for a class or a function that the script defines, and not a library."""
    return is_users(sys.modules.get(getattr(defined, "__module__", None) or ""))


@lru_cache(maxsize=1024)
def is_users(module: ModuleType | None) -> bool:
    """True for a module of the script, and not of a library."""
    file = getattr(module, "__file__", None)
    if file is None:  # such as a notebook
        return module is not None and module.__name__ == "__main__"
    return not is_foreign(file)


@lru_cache(maxsize=1024)
def is_foreign(file: str) -> bool:
    """True for a file of code that is not the script's."""
    return "site-packages" in file or file.startswith(LIBRARIES)


def is_same(function: object, other: object) -> bool:
    """True for one function, and for one method that was read twice from its object."""
    return function is other or (
        type(function) is type(other) and hasattr(function, "__self__") and function == other
    )


def is_of_a_cell(function: Callable[..., Any]) -> bool:
    """True for a function that a cell of a notebook defines, and defines again if it is run again.

    In a script several functions may have one name, and each of them counts. So does each of those
    in a notebook that are called `_`, or that another function makes.
    """
    name = getattr(function, "__qualname__", "<")
    if not hasattr(function, "__code__") or "<" in name or not name.strip("_"):
        return False
    place: dict[str, Any] = getattr(function, "__globals__", {})
    return place.get("__name__") == "__main__" and "__file__" not in place


def is_defined_again(function: Callable[..., Any], earlier: Callable[..., Any]) -> bool:
    """True if the cell that defined the earlier function was run again: see `is_of_a_cell`.

    The functions that a loop makes share their code, and each of them counts.
    """
    before = getattr(earlier, "__code__", None)
    if before is None:
        return False
    code, name = function.__code__, function.__qualname__
    if code is before or name != getattr(earlier, "__qualname__", None):
        return False
    if function.__globals__ is not getattr(earlier, "__globals__", None):
        return False
    is_same_cell = code.co_filename == before.co_filename
    return not is_same_cell or code.co_firstlineno == before.co_firstlineno


def check_arity(function: object, arguments: int, where: str, needs: str) -> None:
    """Refuse what cannot be called with this many positional arguments."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    if not callable(function):
        raise TypeError(f"{function!r} for {where} cannot be called; it needs to be a function")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{name} for {where} is a coroutine function; write it with plain def")
    if inspect.isgeneratorfunction(function):
        raise TypeError(f"{name} for {where} has a yield in it, so a call would not run it")
    try:
        # A module's own call takes anything, and hands it to this one.
        signature = inspect.signature(getattr(function, "forward", function))
    except (TypeError, ValueError):  # some built-ins do not tell
        return
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        raise TypeError(
            f"{name}{signature} for {where} cannot be called with {needs}; write it to take "
            f"{arguments} positional argument{'s' * (arguments > 1)}"
        ) from None
