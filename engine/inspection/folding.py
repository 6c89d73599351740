"""Which calls a user wants to see first: those of the user, and what each handler is there for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from ..events import EventEnum, Events, Trigger
from ..signals import Receiver, Subscription

PACKAGE = __name__.partition(".")[0]
CYCLE = frozenset(
    {
        *(Events.BACKWARD_COMPLETED, Events.GRADIENTS_READY),
        *(Events.STEP_COMPLETED, Events.STEP_SKIPPED),
        *(Events.ITERATION_COMPLETED, Events.EPOCH_COMPLETED),
    }
)
"""Where handlers without a `when=` act; in the engine's other events they begin and end."""


class Listener(NamedTuple):
    """A receiver of an event."""

    event: EventEnum
    receiver: Receiver


def is_of_the_user(receiver: Receiver) -> bool:
    """True if a function, or the class of the object that has it, is not Camshaft's."""
    return _home(receiver)[:1] != [PACKAGE]


def calls_that_act(calls: Iterable[Listener]) -> set[Listener]:
    """The calls of the user's functions and handlers, and those that other handlers are for."""
    by_handler: dict[int, list[Listener]] = {}
    acting: set[Listener] = set()
    for call in calls:
        handler = getattr(_function(call.receiver), "__self__", None)
        if is_of_the_user(call.receiver) or handler is None:
            acting.add(call)
        elif _home(call.receiver)[1:2] != ["engine"]:  # else it is a part of the process function
            by_handler.setdefault(id(handler), []).append(call)
    for own in by_handler.values():
        acting.update(_purpose(own))
    return acting


def _purpose(calls: list[Listener]) -> list[Listener]:
    """The calls by the handler's own `when=`, else those in the cycle, else the first one."""
    values = vars(_function(calls[0].receiver).__self__).values()
    chosen = {Trigger.of(each) for each in values if isinstance(each, EventEnum | Trigger)}
    events = {each.events for each in chosen}
    return (
        [call for call in calls if _trigger(call) in chosen]
        or [call for call in calls if _trigger(call).events in events]
        or [call for call in calls if call.event in CYCLE or call.event not in Events]
        or calls[:1]
    )


def _trigger(call: Listener) -> Trigger:
    if isinstance(call.receiver, Subscription):
        return call.receiver.trigger
    return Trigger.of(call.event)


def _function(receiver: Receiver) -> Any:
    function: Any = receiver.function if isinstance(receiver, Subscription) else receiver
    while isinstance(function, partial):
        function = function.func
    return function


def _home(receiver: Receiver) -> list[str]:
    """The module of a function, or of the class of the object that has it, in parts."""
    function = _function(receiver)
    owner = getattr(function, "__self__", None)
    home = function if owner is None else type(owner)
    return str(getattr(home, "__module__", "")).split(".")
