"""The handlers and functions attached to an engine, and the names of their memories."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from .functions import identity

Handler = TypeVar("Handler")


@dataclass(eq=False)
class Attached(Generic[Handler]):
    """The handlers of an engine, and the names of everything attached to it.

    Each name is unique, and the same whenever the script runs: what handlers and functions
    remember of a run is saved under it.
    """

    handlers: dict[str, Handler] = field(default_factory=dict[str, Handler])
    local: set[str] = field(default_factory=set[str])
    """The names of handlers that other ranks may lack."""
    _names: dict[int, str] = field(default_factory=dict[int, str])
    """The names of handlers, by identity: a function asks for its own in each iteration."""
    _functions: dict[Hashable, tuple[object, str]] = field(default_factory=dict[Any, Any])
    """Functions that may remember, and the names of their memories."""
    _taken: dict[str, bool] = field(default_factory=dict[str, bool])
    """All names, and whether it is that of a handler's method."""
    _numbers: dict[str, int] = field(default_factory=dict[str, int])
    """The largest number that a name was given to make it unique."""

    def copy(self) -> Self:
        """The same; what is attached later to one of the two is not attached to the other."""
        return type(self)(*map(copy, vars(self).values()))

    def hold(self, handler: Handler, local: bool = False) -> None:
        """Name a handler after its class and its metric, name or object."""
        given = (getattr(handler, word, None) for word in ("metric", "name", "object"))
        about = next((each for each in given if each and isinstance(each, str)), None)
        kind = type(handler).__name__
        name = self.free(f"{kind}({about})" if about else kind)
        self.handlers[name], self._names[id(handler)] = handler, name
        if local:
            self.local.add(name)

    def release(self, handler: Handler) -> None:
        """Forget a handler; its name stays taken."""
        del self.handlers[self._names.pop(id(handler))]

    def handler_name(self, handler: object) -> str | None:
        """The name of a handler; None if it is not attached."""
        return self._names.get(id(handler))

    def twin_of(self, handler: Handler) -> str | None:
        """The name of an attached handler of the same class with the same settings, if any."""
        own = _settings(handler)
        found = ((n, e) for n, e in reversed(self.handlers.items()) if type(e) is type(handler))
        return next((name for name, each in found if own and _settings(each) == own), None)

    def know(self, function: Callable[..., Any], name: str) -> None:
        """Give a function's memory this name; if attached again, it keeps its first name."""
        self._functions.setdefault(identity(function), (function, name))

    def name_of(self, owner: object) -> str | None:
        """The name under which a handler or a function remembers; None if it is not attached."""
        if (name := self.handler_name(owner)) is not None:
            return name
        known = self._functions.get(id(owner)) or self._functions.get(identity(owner))
        return None if known is None else known[1]

    @property
    def names(self) -> list[str]:
        """The names of all handlers, and of the functions that belong to none."""
        return [name for name, of_a_handler in self._taken.items() if not of_a_handler]

    def has_name(self, name: str) -> bool:
        """True if something is called so: a handler, a function, a handler's method."""
        return name in self._taken or any(name == each for _, each in self._functions.values())

    def free(self, name: str, *, of_a_handler: bool = False) -> str:
        """Take a name: itself, or with a number that makes it unique."""
        unique = name
        while unique in self._taken:
            number = self._numbers[name] = self._numbers.get(name, 1) + 1
            unique = f"{name}.{number}"
        self._taken[unique] = of_a_handler
        return unique


def _settings(handler: object) -> dict[str, Any]:
    """The attributes of a handler, to be compared by value where they have one."""
    return {name: _comparable(value) for name, value in getattr(handler, "__dict__", {}).items()}


def _comparable(value: Any) -> Any:
    try:  # a tensor's hash is its identity, so that two of them are not compared any further
        return hash(value), value
    except TypeError:
        return id(value)
