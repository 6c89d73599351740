"""The handlers of a bridge engine as a table and a picture: ignite's beside Camshaft's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ignite.engine import Events as IgniteEvents

from ..events import Clause, EventEnum, Events, Trigger
from ..inspection import Description, RunRows
from ..signals import Signals, Subscription, label
from .filters import unwrapped, words

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
    """An event of ignite that Camshaft has not, under its name."""
    make: Any = EventEnum  # the functional form of Enum, which type checkers take for a member
    event: EventEnum = make("ignite", {name: name})[name]
    return event


class AsWritten(Clause):
    """Shows a filter of ignite in ignite's words; some of them fire where no trigger of ours does.

    `every` counts from `after` on there, and a filter may say that it never fires.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{self.event!r}({words(self.where)})" if self.where else repr(self.event)
