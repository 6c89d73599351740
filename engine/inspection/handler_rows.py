"""The handlers of an engine as rows, and the places of these rows in the life of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from ..events import EventEnum, Events, Stage, Trigger
from ..signals import PACKAGE, Receiver, Signals, Subscription, label, source

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

    @property
    def trigger(self) -> Trigger:
        """When it is called."""
        each = self.receiver
        return each.trigger if isinstance(each, Subscription) else Trigger.of(self.event)


class HandlerRow(NamedTuple):
    """One handler in one moment."""

    event: EventEnum
    stage: Stage
    handler: str
    trigger: Trigger
    source: str
    training: bool = True
    """False in an evaluation."""
    owner: str = ""
    """The handler whose method it is."""
    is_own: bool = True
    """True for what the user has written, False for what comes with Camshaft."""
    is_folded: bool = False
    """True for a call by which a handler of Camshaft begins, counts, checks or ends."""

    @property
    def moment(self) -> str:
        """The event, and whether it is one of an evaluation."""
        return f"{'' if self.training else 'evaluation, '}{self.event!r}"

    @property
    def when(self) -> str:
        """The conditions on this event: `"every=2"`, `"last"`, or `""` for each occurrence."""
        if not (clauses := self.trigger.clauses_on(self.event)):
            return "last"
        texts = sorted(repr(replace(clause, last=False)) for clause in clauses)
        return " | ".join(text.removeprefix(repr(self.event))[1:-1] for text in texts)

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The stage, name, trigger and source of the handler."""
        return self.stage.name, self.handler, repr(self.trigger), self.source


def handler_rows(signals: Signals, training: bool) -> Iterator[HandlerRow]:
    """The handlers of an engine's signals, in the order of the events and of the calls."""
    own = [event for event in signals if not isinstance(event, Events)]
    heard = [event for event in (*Events, *own) if event in signals]
    calls = [
        Listener(event, each) for event in heard for each in signals[event].receivers_for(None)
    ]
    acting = calls_that_act(calls)
    for call in calls:
        each, stage, handler = call.receiver, Stage.ACT, ""
        if isinstance(each, Subscription):
            stage, handler = each.stage, each.handler
        yield HandlerRow(
            *(call.event, stage, label(each), call.trigger, source(each), training, handler),
            is_own=is_of_the_user(each),
            is_folded=call not in acting,
        )


@dataclass(frozen=True)
class RunRows:
    """One kind of run, with the rows of its handlers in the order of the calls."""

    title: str
    process: str
    """The name of the process function."""
    source: str
    """Where it is written."""
    is_own: bool
    """True if it is the user's, False for one of `supervised`."""
    rows: tuple[HandlerRow, ...]

    @classmethod
    def of(cls, process: Callable[..., Any], signals: Signals, training: bool) -> RunRows:
        """Look up who is called in runs of this process function."""
        title = "run" if training else "evaluate"
        rows = tuple(handler_rows(signals, training))
        return cls(title, label(process), source(process), is_of_the_user(process), rows)

    @property
    def folded(self) -> tuple[HandlerRow, ...]:
        """The rows of the short table: each handler of Camshaft where it acts, by its name."""
        return tuple(self._folded())

    def _folded(self) -> Iterator[HandlerRow]:
        last = None
        for row in self.rows:
            if row.is_folded:
                continue
            if not row.is_own:
                row = row._replace(handler=row.owner or row.handler, source="")  # noqa: PLW2901
            if row.is_own or last is None or row[:3] != last[:3] or row.when != last.when:
                yield row
            last = row


def is_of_the_user(receiver: Receiver) -> bool:
    """True if a function, or the class of the object that has it, is not Camshaft's."""
    return _home(receiver)[:1] != [PACKAGE]


def calls_that_act(calls: Iterable[Listener]) -> set[Listener]:
    """All calls of the user's code, and the main calls of Camshaft's handlers."""
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
        [call for call in calls if call.trigger in chosen]
        or [call for call in calls if call.trigger.events in events]
        or [call for call in calls if call.event in CYCLE or call.event not in Events]
        or calls[:1]
    )


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


BOXES = ("each epoch", "each batch", "")
"""The names of the boxes, from the outer one in; the inner one is the process function."""
INSIDE = len(BOXES)
LEVELS: dict[EventEnum, int] = {
    **dict.fromkeys((Events.EPOCH_STARTED, Events.EPOCH_COMPLETED), 1),
    **dict.fromkeys((Events.ITERATION_STARTED, Events.ITERATION_COMPLETED, Events.SAVING), 2),
    **dict.fromkeys((Events.BACKWARD_COMPLETED, Events.GRADIENTS_READY), INSIDE),
    **dict.fromkeys((Events.STEP_COMPLETED, Events.STEP_SKIPPED), INSIDE),
}
"""The number of boxes around an event; it is 0 for others of the engine's."""


class Place(NamedTuple):
    """A place in a run: an event with its handlers, or without an event, a box's begin or end."""

    level: int
    """The number of boxes around it."""
    event: EventEnum | None = None
    rows: Sequence[HandlerRow] = ()
    begins: bool = False

    @property
    def name(self) -> str:
        """The name of the event or box; that of a user's event has its class before it."""
        if self.event is None:
            return BOXES[self.level]
        return self.event.name if self.event in Events else repr(self.event)


def life(rows: Sequence[HandlerRow], *, idle: bool = False) -> Iterator[Place]:
    """The places of a run with these handlers; with `idle`, also events without handlers."""
    heard = {row.event for row in rows}
    level = 0
    for event in _order(row.event for row in rows):
        if not idle and event not in heard and event is not PROCESS:
            continue
        while level > (around := LEVELS.get(event, 0 if event in Events else INSIDE)):
            level -= 1
            yield Place(level)
        while level < around:
            yield Place(level, begins=True)
            level += 1
        if idle or event in heard:
            yield Place(level, event, [row for row in rows if row.event is event])
    for outer in reversed(range(level)):
        yield Place(outer)


PROCESS = Events.GRADIENTS_READY
"""An event inside the process function, whose box is always drawn."""


def _order(heard: Iterable[EventEnum]) -> list[EventEnum]:
    """All events in their order; those of the user come while a batch is processed."""
    own = dict.fromkeys(event for event in heard if event not in Events)
    events: list[EventEnum] = [event for event in Events if event is not Events.SAVING]
    place = events.index(Events.ITERATION_COMPLETED)
    return [*events[:place], *own, events[place], Events.SAVING, *events[place + 1 :]]
