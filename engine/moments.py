"""The triggers of one run, compiled to the counts at which they are next due."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heapreplace
from operator import itemgetter
from typing import Any

from . import ranks
from .events import NEVER, Clause, EventEnum, Events, Trigger
from .explain import explain, place
from .signals import Receiver, Signal, Signals, Subscription, Watch, label, source
from .state import LEAVABLE, Left, State

OF_WHERE = (
    "The where= of a handler that talks to the other ranks has to be the same on all of them: "
    "where=lambda state: ranks.any_rank(...)"
)

Call = tuple[int, Receiver, Receiver]
"""The place of a receiver in its moment, the function to call, and the receiver itself."""


class Moments(dict[EventEnum, "Moment"]):
    """The moments of one run, by event, each made on first use.

    In a rehearsal, `rehearsal` makes the function that replaces each handler.
    """

    def __init__(self, signals: Signals, rehearsal: Watch | None = None) -> None:
        super().__init__()
        self.signals = signals
        self.rehearsal = rehearsal

    def __missing__(self, event: EventEnum) -> Moment:
        watches = self.signals.watches if self.rehearsal is None else [self.rehearsal]
        entry = partial(Entry, event, watches, self.rehearsal is not None)
        moment = self[event] = Moment(self.signals[event], entry)
        return moment

    def add_check(self, event: EventEnum, function: Receiver, *, last: bool = False) -> None:
        """Call a check of this run at each occurrence: before all handlers, or after all.

        A check is not a handler: descriptions do not list it, and watches do not see it.
        """
        moment = self[event]
        (moment.last if last else moment.first).append(function)
        moment.outdate()

    def drop_check(self, event: EventEnum, function: Receiver) -> None:
        """Stop calling a check, from the next occurrence on."""
        moment = self[event]
        for checks in (moment.first, moment.last):
            if function in checks:
                checks.remove(function)
        moment.outdate()

    def announce(self, event: EventEnum, state: State[Any, Any]) -> None:
        """Fire an event of the engine, except the events of an iteration."""
        moment, count = self[event], _count(event, state)
        if count >= moment.due:
            moment.fire(state, count)

    def conclude(self, event: EventEnum, state: State[Any, Any]) -> list[BaseException]:
        """Fire an event at which every handler is called; return the exceptions."""
        return self[event].fire_each(state, _count(event, state))

    def close(self) -> None:
        """Stop listening."""
        for moment in self.values():
            moment.signal.listeners.remove(moment.outdate)
        self.clear()


class Moment:
    """One event of one run: the receivers to call at each count.

    `due` is the smallest count at which a receiver is called; below it, `fire` is not needed.
    """

    __slots__ = (
        *("_always", "_entry", "_next", "_outdated", "_timed"),
        *("called", "due", "failed", "first", "last", "signal"),
    )

    def __init__(self, signal: Signal, entry: Callable[[Receiver], Entry]) -> None:
        self.signal = signal
        self._entry = entry
        self._always: list[Call] = []
        self._timed: list[tuple[int, int, Entry]] = []
        self.called: Receiver | None = None  # in `fire`: the receiver that is being called
        self.first: list[Receiver] = []
        """Checks of this run that are called before all handlers."""
        self.last: list[Receiver] = []
        """Checks of this run that are called after all handlers."""
        self.failed: bool = False  # in `fire_each`: true after a receiver that has failed
        self._next = NEVER
        self._outdated: bool = True
        self.due: int = 0
        signal.listeners.append(self.outdate)

    def outdate(self) -> None:
        """Compile again when the event next fires, because receivers have changed."""
        self._outdated = True
        self.due = 0

    def fire(self, state: State[Any, Any], count: int) -> None:
        """Call the receivers due at this count, by stage and in the order of attachment.

        If an evaluation is left, so is the moment: the resumed run goes on with this receiver.
        """
        try:
            calls = self._calls(state, count)
            if left_at := state.control.left_at:
                calls = self._take_up(calls, left_at)
            for _, call, self.called in calls:
                call(state)
        except Left:
            self._leave(state)
            if self.signal.event not in LEAVABLE:
                raise
        except BaseException as error:
            explain(error, self._where(self.called), state)
            raise
        finally:
            self.called = None

    def _leave(self, state: State[Any, Any]) -> None:
        """Note where the resumed run goes on; this occurrence does not count."""
        event = self.signal.event
        state.control.left_at[repr(event)] = "" if self.called is None else label(self.called)
        if event.clock == "occurrences":
            state.counts[event] -= 1

    def _take_up(self, calls: list[Call], left_at: dict[str, str]) -> list[Call]:
        """The calls from where an earlier part of the run has left; of STARTED, they are all."""
        if self.signal.event is Events.STARTED:
            return calls
        name = left_at.pop(repr(self.signal.event), "")
        names = [label(receiver) for _, _, receiver in calls]
        return calls[names.index(name) :] if name in names else calls

    def fire_each(self, state: State[Any, Any], count: int) -> list[BaseException]:
        """Call all receivers that are due, also after exceptions; return the exceptions."""
        errors: list[BaseException] = []
        for _, call, receiver in self._calls(state, count):
            try:
                call(state)
            except BaseException as error:
                error.add_note(f"{self._where(receiver)}, {place(state)}")
                errors.append(error)
                self.failed |= not isinstance(error, SystemExit)
        try:
            return errors
        finally:
            del errors  # breaks a cycle: their tracebacks hold this frame

    def _where(self, receiver: Receiver | None) -> str:
        if receiver is None:
            return f"in {self.signal.event!r}"
        return f"in {self.signal.event!r}, handler {label(receiver)} ({source(receiver)})"

    def _calls(self, state: State[Any, Any], count: int) -> list[Call]:
        if self._outdated:
            self._compile(state, count)
        if count < self._next:
            return self._always
        calls = self._always.copy()
        timed = self._timed
        while timed[0][0] <= count:
            _, order, entry = timed[0]
            heapreplace(timed, (entry.next(count), order, entry))
            if count >= entry.quiet:
                calls.append((order, entry.call(count), entry.receiver))
        calls.sort(key=_order)
        self._set_due()
        return calls

    def _compile(self, state: State[Any, Any], count: int) -> None:
        signal = self.signal
        self._outdated = False
        self._always, self._timed = [], []
        if self.first:
            self._always += [(-1, check, check) for check in self.first]
        order = 0
        is_silent = not signal.receivers or signal.is_muted
        receivers = () if is_silent else signal.receivers_for(state)
        for order, receiver in enumerate(receivers):
            entry = self._entry(receiver)
            if entry.is_always:
                self._always.append((order, entry.function, receiver))
            else:
                self._timed.append((entry.next(count - 1), order, entry))
        if self.last:
            self._always += [(order + 1, check, check) for check in self.last]
        heapify(self._timed)
        self._set_due()

    def _set_due(self) -> None:
        self._next = self._timed[0][0] if self._timed else NEVER
        self.due = 0 if self._always else self._next


class Entry:
    """One receiver in one moment: its next due count, and the function to call then."""

    __slots__ = (
        *("_clauses", "_ends", "_last", "_local", "_rehearsing"),
        *("function", "is_always", "quiet", "receiver"),
    )

    def __init__(
        self,
        event: EventEnum,
        watches: Iterable[Watch],
        rehearsing: bool,
        receiver: Receiver,
    ) -> None:
        trigger, function = Trigger.of(event), receiver
        if isinstance(receiver, Subscription):
            trigger, function = receiver.trigger, receiver.function
        self._local = isinstance(receiver, Subscription) and receiver.local
        self.receiver = receiver
        if self._local and ranks.world_size() > 1:
            function = ranks.on_this_rank(function, label(receiver))
        self.function = function
        for watch in watches:
            self.function = watch(event, receiver, self.function)
        self._clauses = trigger.clauses_on(event)
        self._last = trigger.last
        self.is_always: bool = not self._last and any(c.is_always for c in self._clauses)
        """True if the function is called at each occurrence, with no condition to check."""
        self._ends = trigger.last and event is Events.COMPLETED
        self._rehearsing = rehearsing
        self.quiet: int = 0
        """Below this count, no call is possible, as the only clause has found."""

    def next(self, count: int) -> int:
        """The smallest count greater than `count` at which a call is possible."""
        if self._ends:
            return count + 1
        low = max(count, self.quiet - 1)
        return min(clause.next(low) for clause in self._clauses)

    def call(self, count: int) -> Receiver:
        """The call for this count: the function, or `_ask`, which checks conditions first."""
        certain = any(c.is_plain and c.next(count - 1) == count for c in self._clauses)
        return self.function if certain and not self._last else partial(self._ask, count)

    def _ask(self, count: int, state: State[Any, Any]) -> None:
        firing = state.recall(self.receiver, partial(Firing, state.control.began))
        before = {**firing.__dict__}
        ends = self._ends and firing.iteration != state.iteration
        if any(self._holds(clause, count, state, firing) for clause in self._clauses) or ends:
            firing.record(state.iteration, count)
            meets: AbstractContextManager[None] = nullcontext()
            if (meetings := state.control.meetings) and any(c.where for c in self._clauses):
                does = f"calls {label(self.receiver)} in iteration {state.iteration}"
                meets = meetings.first(does, OF_WHERE)
            try:
                with meets:
                    self.function(state)
            except Left:  # this was no call: the resumed run makes it
                firing.__dict__.update(before)
                raise

    def _holds(self, clause: Clause, count: int, state: State[Any, Any], firing: Firing) -> bool:
        if clause.next(count - 1) != count:
            return False
        if repr(clause) in firing.spent:
            return self._wait_for(NEVER)
        if clause.seconds is not None and (
            self._rehearsing or not firing.is_over(clause.seconds, count, self._local)
        ):
            return self._wait_for(firing.look_at)
        if clause.where is not None and not self._rehearsing and not clause.where(state):
            return False
        if clause.once:
            firing.spent = [*firing.spent, repr(clause)]
        return True

    def _wait_for(self, count: int) -> bool:
        """Skip checks below this count, unless another clause may hold; return False."""
        if len(self._clauses) == 1 and not self._last:
            self.quiet = count
        return False


@dataclass
class Firing:
    """A run's memory of a handler whose trigger has conditions besides counts."""

    called: float
    """The clock's time of the last call, or of the beginning of the run."""
    iteration: int = -1
    """The run's iteration of the last call."""
    spent: list[str] = field(default_factory=list)
    """The `once=True` clauses that have fired."""
    _count: int | None = None
    look_at: int = 0
    """The count of the next look at the clock."""

    def record(self, iteration: int, count: int) -> None:
        """Record a call at this moment."""
        self.iteration, self.called = iteration, time.monotonic()
        self._count, self.look_at = count, 0

    def is_over(self, seconds: float, count: int, local: bool) -> bool:
        """True if `seconds` have passed since the last call.

        Rank 0's clock decides; for a handler that only this rank has, this rank's clock. From the
        pace so far, each look at the clock estimates the count at which the time is over; the next
        look comes half-way to it. So there are few looks, at the same counts on every rank.
        """
        if count < self.look_at:
            return False
        passed = time.monotonic() - self.called
        if not local:
            passed = ranks.agreed(passed)
        if passed >= seconds:
            return True
        done = 1 if self._count is None else max(1, count - self._count)
        self._count = count - done
        self.look_at = count + max(1, int((seconds - passed) / max(passed, 1e-9) * done / 2))
        return False

    def state_dict(self) -> dict[str, Any]:
        """The values to save; the time of the last call is saved as elapsed time."""
        passed = time.monotonic() - self.called
        return {"passed": passed, "iteration": self.iteration, "spent": list(self.spent)}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue from saved values."""
        self.called = time.monotonic() - saved["passed"]
        self.iteration, self.spent = saved["iteration"], list(saved["spent"])


_order = itemgetter(0)


def _count(event: EventEnum, state: State[Any, Any]) -> int:
    if event.clock == "epochs":
        return state.epoch
    counts = state.control.counts
    counts[event] += 1
    return counts[event]
