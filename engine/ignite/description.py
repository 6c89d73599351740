"""The handlers of a bridge engine as a table and a picture: ignite's beside Camshaft's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ignite.engine import Events as IgniteEvents

from ..events import Clause, EventEnum, Events, Trigger
from ..inspection import Description, Part
from ..signals import Signals, Subscription, label
from .filters import conditions, unwrapped

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
    part = Part.of(engine.native.process, signals, training=True)
    return Description((part,), all)


def _subscriptions(engine: Any) -> Iterator[tuple[EventEnum, Subscription]]:
    others: dict[str, EventEnum] = {}
    for event, handlers in engine._event_handlers.items():
        name = getattr(event, "name", str(event))
        native = SAME.get(event) or others.setdefault(name, _event(name))
        for function, _, _ in handlers:
            plain = unwrapped(function)
            trigger = _trigger(native, getattr(function, "__dict__", {}).get("_filter"))
            yield native, Subscription(plain, trigger, name=label(plain))


def _event(name: str) -> EventEnum:
    """An event of ignite that Camshaft has not, under its name."""
    make: Any = EventEnum  # the functional form of Enum, which type checkers take for a member
    event: EventEnum = make("ignite", {name: name})[name]
    return event


def _trigger(event: EventEnum, condition: Callable[..., Any] | None) -> Trigger:
    """The trigger that says what a filter of ignite says; its closure has the numbers."""
    if condition is None:
        return Trigger.of(event)
    if not (given := conditions(condition)):
        return Trigger(frozenset([Clause(event, where=condition)]))
    if "every" in given and "after" in given:  # ignite counts from `after` on, Camshaft from 1
        return Trigger(frozenset([Clause(event, where=condition)]))
    counts = given.pop("once", None)
    at = None if counts is None else frozenset(counts)
    return Trigger(frozenset([Clause(event, at=at, **given)]))
