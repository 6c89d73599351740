"""Events, and the triggers that say at which of their occurrences a handler is called."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, EnumType, IntEnum
from operator import index
from typing import TYPE_CHECKING, Any, Self

from .names import OF_EVENTS, unknown

Predicate = Callable[[Any], bool]
"""A condition on the state of a run. `State` is typed as `Any`: this file must not import it."""

NEVER = sys.maxsize
"""The next due count of a trigger that cannot fire again."""


class Stage(IntEnum):
    """The order of handlers in a moment: first they measure, then they act, then they report."""

    MEASURE = 1
    ACT = 2
    REPORT = 3


class EventType(EnumType):
    """The metaclass of event classes: it suggests the event that a wrong name probably meant."""

    if not TYPE_CHECKING:  # type checkers report wrong names themselves

        def __getattr__(cls, name: str) -> Any:
            """Raise an error with the event that was probably meant."""
            raise unknown(cls.__name__, name, cls.__members__, OF_EVENTS)


class EventEnum(Enum, metaclass=EventType):
    """An event: derive from this class to add your own events.

    Every event counts on one clock: `"epochs"`, `"iterations"`, `"steps"`, or `"occurrences"`,
    which is how often the event itself was fired. Your own events count occurrences.

    >>> class GanEvents(EventEnum):
    ...     CRITIC_UPDATED = "critic_updated"
    >>> GanEvents.CRITIC_UPDATED(every=2)
    GanEvents.CRITIC_UPDATED(every=2)
    """

    clock: str

    def __new__(cls, label: str, clock: str = "occurrences") -> Self:
        """Make the member named `label` that counts on `clock`."""
        member = object.__new__(cls)
        member._value_ = label
        member.clock = clock
        return member

    # Members are dictionary keys in every step; Enum's own hash is slow, as it is Python code.
    if TYPE_CHECKING:

        def __hash__(self) -> int: ...

    else:
        __hash__ = object.__hash__

    def __call__(
        self,
        *,
        every: int | None = None,
        at: int | Iterable[int] | None = None,
        after: int | None = None,
        before: int | None = None,
        seconds: float | None = None,
        where: Predicate | None = None,
        once: bool = False,
        last: bool = False,
    ) -> Trigger:
        """Choose the occurrences of this event at which a handler is called.

        Counts are absolute and start at 1, so they never drift and are the same after a resume.
        Conditions given together must all hold; of triggers combined with `|`, one must hold.

        Args:
            every: Each count that is a multiple of this number.
            at: This count, or these.
            after: Only counts greater than this one.
            before: Only counts smaller than this one.
            seconds: When at least this much wall-clock time has passed since the last call (at
                first: since the run began). Rank 0's clock decides for all ranks.
            where: Only where this predicate of the state is true. It is called last, just before
                the handler would be called.
            once: Only the first time in a run that all the other conditions hold.
            last: Also at the end of the run, in `Events.COMPLETED`, unless the handler was
                already called in the run's last iteration.

        Raises:
            TypeError: A count is not an integer, `once` or `last` is not True or False, or `where`
                cannot be called.
            ValueError: A count is smaller than 1, or no count can fulfil the conditions.
        """
        counts = None if at is None else frozenset(at if isinstance(at, Iterable) else [at])
        clause = Clause(self, every, counts, after, before, seconds, where, once, last)
        return Trigger(frozenset([clause]))

    def __or__(self, other: EventEnum | Trigger) -> Trigger:
        return Trigger.of(self) | other

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class Events(EventEnum):
    """The events of a run, in the order in which they come."""

    LOADING = "loading"
    """Before all others: a saved state is put back here."""
    STARTED = "started"
    EPOCH_STARTED = "epoch_started", "epochs"
    ITERATION_STARTED = "iteration_started", "iterations"
    BACKWARD_COMPLETED = "backward_completed"
    """The gradients of a step are unscaled and normalised; `state.skip_step()` discards them."""
    GRADIENTS_READY = "gradients_ready"
    """The gradients of a step are complete, and the step will be performed."""
    STEP_COMPLETED = "step_completed", "steps"
    """An optimizer step was really performed."""
    STEP_SKIPPED = "step_skipped"
    """The gradients of a step were discarded: float16 overflowed, or a handler skipped the step."""
    ITERATION_COMPLETED = "iteration_completed", "iterations"
    EPOCH_COMPLETED = "epoch_completed", "epochs"
    COMPLETED = "completed"
    """The run ended by its limits or by `state.stop()`; not if it failed or was interrupted."""
    SAVING = "saving"
    """At a commit point, if a save was asked for: handlers write checkpoints here."""
    FAILED = "failed"
    """An exception ends the run; it is re-raised after the handlers."""
    CLOSED = "closed"
    """Always, and last."""


@dataclass(frozen=True, slots=True)
class Clause:
    """Conditions on the occurrences of one event, all of which must hold."""

    event: EventEnum
    every: int | None = None
    at: frozenset[int] | None = None
    after: int | None = None
    before: int | None = None
    seconds: float | None = None
    where: Predicate | None = None
    once: bool = False
    last: bool = False

    def __post_init__(self) -> None:
        for name in ("every", "after", "before"):
            if (count := getattr(self, name)) is not None:
                object.__setattr__(self, name, self._count(name, count))
        if self.at is not None:
            object.__setattr__(self, "at", frozenset(self._count("at", count) for count in self.at))
        for name in ("once", "last"):
            if not isinstance(flag := getattr(self, name), bool):
                given = f"{self.event!r}({name}={flag!r})"
                raise TypeError(f"{given}: needs True or False; at={flag!r} is for counts")
        if self.seconds is not None and not self.seconds > 0:
            raise ValueError(
                f"{self.event!r}(seconds={self.seconds!r}): needs a time greater than 0"
            )
        if self.where is not None and not callable(self.where):
            raise TypeError(
                f"{self.event!r}(where={self.where!r}): needs a function of the state, for example "
                "where=lambda state: state.epoch > 3"
            )
        if self.next(0) == NEVER:
            raise ValueError(f"{self!r} can never fire: no count fulfils all of its conditions")

    def _count(self, name: str, count: object) -> int:
        given = f"{self.event!r}({name}={count!r})"
        try:
            number = index(count)  # type: ignore[arg-type]  # index() is what finds out
        except TypeError:
            raise TypeError(f"{given}: needs a whole number; write {name}=2, say") from None
        if isinstance(count, bool):
            raise TypeError(f"{given}: needs a whole number, not a truth value")
        if number < (name != "after"):
            raise ValueError(f"{given}: counts start at 1; for each occurrence leave {name} out")
        return number

    @property
    def is_plain(self) -> bool:
        """True if the count alone decides."""
        return self.seconds is None and self.where is None

    @property
    def is_always(self) -> bool:
        """True if every occurrence fulfils the clause."""
        return self in (Clause(self.event), Clause(self.event, every=1))

    def next(self, count: int) -> int:
        """The smallest count greater than `count` that fulfils every, at, after, before and once.

        Returns `NEVER` if there is none.
        """
        if self.once and self.is_plain and count > 0:
            first = self.next(0)
            return first if first > count else NEVER
        low = max(count, self.after or 0) + 1
        high = NEVER if self.before is None else self.before
        step = self.every or 1
        if self.at is None:
            due = -(-low // step) * step
        else:
            due = min((n for n in self.at if n >= low and n % step == 0), default=NEVER)
        return due if due < high else NEVER

    def __repr__(self) -> str:
        given = {
            "every": self.every,
            "at": tuple(sorted(self.at)) if self.at is not None else None,
            "after": self.after,
            "before": self.before,
            "seconds": self.seconds,
            "where": getattr(self.where, "__name__", self.where),
            "once": self.once or None,
            "last": self.last or None,
        }
        inside = ", ".join(f"{key}={value}" for key, value in given.items() if value is not None)
        return f"{self.event!r}({inside})" if inside else repr(self.event)


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a handler is called: an immutable value, hashable and compared by its conditions.

    Made by calling an event, combined with `|`; if two clauses hold at once, the handler is called
    once.

    >>> Events.EPOCH_COMPLETED(every=2) | Events.COMPLETED
    Events.COMPLETED | Events.EPOCH_COMPLETED(every=2)
    """

    clauses: frozenset[Clause]

    @classmethod
    def of(cls, when: EventEnum | Trigger) -> Trigger:
        """`when` itself if it is a trigger; for an event, the trigger of each occurrence.

        Raises:
            TypeError: `when` is neither an event nor a trigger.
        """
        if isinstance(when, EventEnum):
            return cls(frozenset([Clause(when)]))
        if isinstance(when, Trigger):
            return when
        raise TypeError(
            f"got {when!r} for an event; it needs a member of Events or of a class derived from "
            "EventEnum, for example Events.EPOCH_COMPLETED or Events.ITERATION_COMPLETED(every=10)"
        )

    @property
    def events(self) -> frozenset[EventEnum]:
        """The events in which a handler with this trigger may be called."""
        named = frozenset(clause.event for clause in self.clauses)
        return named | {Events.COMPLETED} if self.last else named

    @property
    def last(self) -> bool:
        """True if the handler is also called at the end of the run."""
        return any(clause.last for clause in self.clauses)

    def clauses_on(self, event: EventEnum) -> tuple[Clause, ...]:
        """The clauses that look at this event."""
        return tuple(clause for clause in self.clauses if clause.event is event)

    def __or__(self, other: EventEnum | Trigger) -> Trigger:
        return Trigger(self.clauses | Trigger.of(other).clauses)

    def __repr__(self) -> str:
        return " | ".join(sorted(map(repr, self.clauses)))
