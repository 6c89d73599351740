"""What was called when: the trace of a real run, or of a rehearsal without a model."""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from ..data import Feed
from ..events import EventEnum
from ..loop import Loop
from ..moments import Moments
from ..signals import Process, Receiver, Signals, Watch, label
from ..state import State

if TYPE_CHECKING:
    from ..engine import Engine


class Call(NamedTuple):
    """One call of a handler."""

    event: EventEnum
    number: int
    """The count of the event, on its clock."""
    epoch: int
    iteration: int
    handler: str
    depth: int = 0
    """How many calls of handlers enclose it: 1 for a handler of an evaluation by `Validate`."""
    training: bool = True

    @property
    def place(self) -> str:
        """Where in its run."""
        kind = "" if self.training else "evaluation, "
        return f"{'  ' * self.depth}{kind}epoch {self.epoch}, iteration {self.iteration}"

    @property
    def moment(self) -> str:
        """The event, and its count where the place does not say it."""
        known = self.event.clock in ("epochs", "iterations")
        return f"{self.event!r}" if known else f"{self.event!r} {self.number}"

    def __str__(self) -> str:
        return f"{self.place}: {self.moment} {self.handler}"


class Trace(list[Call]):
    """Calls in their order: equal to another if all of them are; one line a call as text."""

    @property
    def outer(self) -> Trace:
        """The calls that are not inside another call, as the moments of an evaluation are."""
        return Trace(call for call in self if call.depth == 0)

    def diff(self, other: list[Call]) -> str:
        """What to drop from this trace (-) and to add (+) to have the other; empty if equal."""
        from difflib import unified_diff  # not on the way of every import

        lines = unified_diff(list(map(str, self)), list(map(str, other)), n=1, lineterm="")
        return "\n".join(list(lines)[2:])  # without the names of files

    def __str__(self) -> str:
        width = max((len(call.moment) for call in self), default=0)
        lines: list[str] = []
        place = None
        for call in self:
            if call.place != place:
                lines.append(place := call.place)
            lines.append(f"{'  ' * call.depth}  {call.moment:{width}}  {call.handler}")
        return "\n".join(lines) or "no calls"

    def _repr_html_(self) -> str:
        """What notebooks show: the text; of a long trace its beginning."""
        more = len(self) - MOST_SHOWN
        rest = f"\nand {more} more calls: print it to see all of them" if more > 0 else ""
        return f"<pre>{escape(f'{Trace(self[:MOST_SHOWN])}{rest}')}</pre>"


MOST_SHOWN = 500
"""The most calls of a trace that a notebook shows."""


@contextmanager
def watching(watch: Watch, *engines: Signals) -> Generator[None]:
    """Within the `with` block, replace each handler by the function that `watch` returns for it.

    The replacement is `watch(event, receiver, function)`; running runs use it from their next
    moment on.
    """
    for signals in engines:
        signals.watches.append(watch)
        signals.changed()
    try:
        yield
    finally:
        for signals in engines:
            signals.watches.remove(watch)
            signals.changed()


@contextmanager
def record(
    *engines: Signals, events: Collection[EventEnum] = (), last: int | None = None
) -> Generator[Trace]:
    """Within the `with` block, list the calls of handlers; see `Engine.record`."""
    trace, depth = Trace(), 0

    def watch(event: EventEnum, receiver: Receiver, function: Receiver) -> Receiver:
        name = label(receiver)

        def call(state: State[Any, Any]) -> None:
            nonlocal depth
            if not events or event in events:
                trace.append(_call(event, name, state, depth))
                if last is not None and len(trace) > last:
                    del trace[0]
            depth += 1
            try:
                function(state)
            finally:
                depth -= 1

        return call

    with watching(watch, *engines):
        yield trace


def rehearse(
    engine: Engine[Any, Any],
    signals: Signals,
    process: Process[Any, Any] | None,
    max_epochs: int,
    epoch_length: int,
) -> Trace:
    """Run the loop, and list the handlers instead of calling them; see `Engine.simulate`."""
    trace = Trace()

    def note(event: EventEnum, receiver: Receiver, function: Receiver) -> Receiver:
        name = label(receiver)
        return lambda state: trace.append(_call(event, name, state))

    state: State[int, Any] = State(max_epochs=max_epochs)
    process = process or (lambda state, batch: None)
    feed = Feed(range(epoch_length), state)
    Loop(engine, process, Moments(signals, note), state, feed).run()
    return trace


def _call(event: EventEnum, name: str, state: State[Any, Any], depth: int = 0) -> Call:
    counts = state.counts
    number = counts[event] if event in counts else getattr(state, event.clock.removesuffix("s"))
    return Call(event, number, state.epoch, state.iteration, name, depth, state.training)
