"""The life of a run: its events in their order, and the boxes that they lie in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..events import EventEnum, Events
from .handler_rows import HandlerRow

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
