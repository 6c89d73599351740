"""The handlers of a bridge engine as a table and a picture: ignite's beside Camshaft's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

from ignite.engine import Events as IgniteEvents

from ....engine import Clause, EventEnum, Events, Trigger
from ....engine.inspection import Description, RunRows
from ....engine.signals import Signals, Subscription, label

SAME = {
    IgniteEvents.STARTED: Events.STARTED,
    IgniteEvents.EPOCH_STARTED: Events.EPOCH_STARTED,
    IgniteEvents.ITERATION_STARTED: Events.ITERATION_STARTED,
    IgniteEvents.ITERATION_COMPLETED: Events.ITERATION_COMPLETED,
    IgniteEvents.EPOCH_COMPLETED: Events.EPOCH_COMPLETED,
    IgniteEvents.COMPLETED: Events.COMPLETED,
    IgniteEvents.EXCEPTION_RAISED: Events.FAILED,
}
"""Events of ignite by the events of Camshaft with the same place in a run."""


def describe(engine: Any, all: bool) -> Description:
    """The table of an engine of the bridge."""
    signals, own = Signals(), engine.native.signals
    for event, subscription in _subscriptions(engine):
        signals[event].connect(subscription)
    for event in own:
        for receiver in own[event].receivers.values():
            signals[event].connect(receiver)
    part = RunRows.of(engine.native.process, signals, training=True)
    return Description((part,), all)


def _subscriptions(engine: Any) -> Iterator[tuple[EventEnum, Subscription]]:
    others: dict[str, EventEnum] = {}
    for event, handlers in engine._event_handlers.items():
        name = getattr(event, "name", str(event))
        native = SAME.get(event) or others.setdefault(name, _event(name))
        for function, _, _ in handlers:
            plain = unwrapped(function)
            written = AsWritten(native, where=getattr(function, "__dict__", {}).get("_filter"))
            yield native, Subscription(plain, Trigger(frozenset([written])), name=label(plain))


def _event(name: str) -> EventEnum:
    """An event of ignite that Camshaft lacks, under the same name."""
    make: Any = EventEnum  # the functional form of Enum, which type checkers take for a member
    event: EventEnum = make("ignite", {name: name})[name]
    return event


class AsWritten(Clause):
    """Shows a filter in ignite's words: no trigger of Camshaft fires where some of these do.

    `every` counts from `after` on there, and a filter may say that it never fires.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{self.event!r}({words(self.where)})" if self.where else repr(self.event)


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
