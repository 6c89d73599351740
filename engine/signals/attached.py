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
    by_id: dict[int, str] = field(default_factory=dict[int, str])
    """The names of handlers, by identity: a function asks for its own in each iteration."""
    local: set[str] = field(default_factory=set[str])
    """The names of handlers that other ranks may lack."""
    names: list[str] = field(default_factory=list[str])
    """The names of all handlers, and of the functions that belong to none."""
    known: set[str] = field(default_factory=set[str])
    """All names: also of handlers' methods, and of what functions remember."""
    _functions: dict[Hashable, tuple[object, str]] = field(default_factory=dict[Any, Any])
    """Functions that may remember, and the names of their memories."""
    _numbers: dict[str, int] = field(default_factory=dict[str, int])
    """The largest number that a name was given to make it unique."""
    _alike: dict[Hashable, Handler] = field(default_factory=dict[Any, Any])
    """The last handler of a class that was attached with its settings."""

    def copy(self) -> Self:
        """The same; what is attached later to one of the two is not attached to the other."""
        return type(self)(*map(copy, vars(self).values()))

    def hold(self, handler: Handler, local: bool = False) -> None:
        """Name a handler after its class and its metric, name or object."""
        given = (getattr(handler, word, None) for word in ("metric", "name", "object"))
        about = next((each for each in given if each and isinstance(each, str)), None)
        kind = type(handler).__name__
        name = self.free(f"{kind}({about})" if about else kind)
        self.handlers[name], self.by_id[id(handler)] = handler, name
        self._alike[_kind(handler)] = handler
        if local:
            self.local.add(name)

    def release(self, handler: Handler) -> None:
        """Forget a handler; its name stays taken."""
        del self.handlers[self.by_id.pop(id(handler))]

    def twin_of(self, handler: Handler) -> str | None:
        """The name of an attached handler of the same class with the same settings, if any."""
        own, other = _settings(handler), self._alike.get(_kind(handler))
        is_alike = own and other is not None and _settings(other) == own  # now, too
        return self.by_id.get(id(other)) if is_alike else None

    def know(self, function: Callable[..., Any], name: str) -> None:
        """Give a function's memory this name; if attached again, it keeps its first name."""
        _, known = self._functions.setdefault(identity(function), (function, name))
        self.known.add(known)

    def function_name(self, function: object) -> str | None:
        """The name under which a function remembers; None if it is not attached."""
        known = self._functions.get(id(function)) or self._functions.get(identity(function))
        return None if known is None else known[1]

    def free(self, name: str, *, of_a_handler: bool = False) -> str:
        """Take a name: itself, or with a number that makes it unique."""
        unique = name
        while unique in self.known:
            number = self._numbers[name] = self._numbers.get(name, 1) + 1
            unique = f"{name}.{number}"
        self.known.add(unique)
        if not of_a_handler:
            self.names.append(unique)
        return unique


def _settings(handler: object) -> dict[str, Any]:
    """The attributes of a handler, to be compared by value where they have one."""
    return {name: _comparable(value) for name, value in getattr(handler, "__dict__", {}).items()}


def _comparable(value: Any) -> Any:
    try:  # a tensor's hash is its identity, so that two of them are not compared any further
        return hash(value), value
    except TypeError:
        return id(value)


def _kind(handler: object) -> Hashable:
    """A key that is equal for two handlers of one class with the same settings."""
    return type(handler), frozenset(_settings(handler).items())
