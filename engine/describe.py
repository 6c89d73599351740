"""What an engine would do: the table of its handlers, and a rehearsal without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .events import EventEnum, Events, Stage, Trigger
from .moments import Moments
from .signals import Subscription, label, source
from .state import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from .engine import Engine, Process


class Call(NamedTuple):
    """One call of a handler in a rehearsal."""

    event: EventEnum
    epoch: int
    iteration: int
    handler: str

    def __str__(self) -> str:
        """One line."""
        return f"epoch {self.epoch}, iteration {self.iteration}: {self.event!r} {self.handler}"


def describe(engine: Engine[Any, Any]) -> str:
    """A table: for each event, the stage, name, trigger and source of its handlers, in order."""
    own = [event for event in engine.signals if not isinstance(event, Events)]
    table: list[EventEnum | tuple[str, str, str, str]] = []
    for event in [*Events, *own]:
        if not (receivers := list(engine.signal(event).receivers_for(None))):
            continue
        table.append(event)
        for each in receivers:
            stage, trigger = Stage.ACT, Trigger.of(event)
            if isinstance(each, Subscription):
                stage, trigger = each.stage, each.trigger
            table.append((f"  {stage.name}", label(each), repr(trigger), source(each)))
    rows = [row for row in table if isinstance(row, tuple)]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    lines = (
        "  ".join(map(str.ljust, row, widths)).rstrip() if isinstance(row, tuple) else repr(row)
        for row in table
    )
    return "\n".join(lines) or "no handlers"


def rehearse(
    engine: Engine[Any, Any],
    process: Process[Any, Any] | None,
    max_epochs: int,
    epoch_length: int,
) -> list[Call]:
    """Run the loop with a list in the place of every handler."""
    from .engine import Engine
    from .loop import Loop

    calls: list[Call] = []

    def hear(event: EventEnum, receiver: Callable[..., Any]) -> Callable[[State[Any, Any]], None]:
        name = label(receiver)
        return lambda state: calls.append(Call(event, state.epoch, state.iteration, name))

    stand_in: Engine[int, Any] = Engine(process or (lambda state, batch: None))
    state: State[int, Any] = State(max_epochs=max_epochs)
    Loop(stand_in, state, range(epoch_length), None, moments=Moments(engine, hear)).run()
    return calls
