"""The time that each handler takes."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from ..engine import Engine, EventEnum, Events, Receiver, Stage, State, label
from .common import Cell, aligned

logger: logging.Logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class TimeHandlers:
    """Log a table at the end of a run: how long each handler took in each moment.

    The time of a handler that evaluates includes the evaluation, whose handlers have rows of their
    own. Times are measured on the host: they leave out what a device still computes when a handler
    returns. The first moment, LOADING, is not timed, nor are handlers that close after this one.
    """

    only_on_rank: ClassVar[None] = None
    """Each rank has its own, or none."""
    _times: WeakKeyDictionary[State[Any, Any], Times] = field(
        default_factory=WeakKeyDictionary[State[Any, Any], "Times"], init=False, repr=False
    )

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Begin at the first moment, and report at the last."""
        engine.on(Events.LOADING, stage=Stage.MEASURE)(self.begin)
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.report)

    def begin(self, state: State[Any, Any]) -> None:
        """Time all calls from the next moment on."""
        times = self._times[state] = Times()
        times.running.enter_context(state.engine.watching(times.watch))

    def report(self, state: State[Any, Any]) -> None:
        """Stop timing, and log the table."""
        times = self._times[state]
        times.running.close()
        times.seconds = perf_counter() - times.began
        logger.info("what handlers cost\n%s", times.table())

    def table(self, state: State[Any, Any]) -> str:
        """The table of a run, also while it goes on.

        Raises:
            ValueError: The run was not timed.
        """
        if state not in self._times:
            raise ValueError("this run was not timed; engine.add() the handler before it begins")
        return self._times[state].table()


@dataclass(slots=True)
class Cost:
    """The calls of one handler in one moment."""

    calls: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Times:
    """The times of one run."""

    costs: dict[tuple[str, EventEnum], Cost] = field(default_factory=dict)
    inside: float = 0.0
    """The seconds in which at least one handler was running."""
    depth: int = 0
    running: ExitStack = field(default_factory=ExitStack)
    began: float = field(default_factory=perf_counter)
    seconds: float | None = None
    """The seconds of the whole run, once it is over."""

    def watch(self, event: EventEnum, receiver: Receiver, function: Receiver) -> Receiver:
        """Call `function`, and time it."""
        cost = self.costs.setdefault((label(receiver), event), Cost())

        def call(state: State[Any, Any]) -> None:
            self.depth += 1
            began = perf_counter()
            try:
                function(state)
            finally:
                passed = perf_counter() - began
                self.depth -= 1
                cost.calls += 1
                cost.seconds += passed
                if not self.depth:
                    self.inside += passed

        return call

    def table(self) -> str:
        """A line for each handler and moment, the most expensive first, and one for their sum."""
        called = [(name, event, cost) for (name, event), cost in self.costs.items() if cost.calls]
        called.sort(key=lambda row: -row[2].seconds)
        rows: list[tuple[Cell, ...]] = [("handler", "moment", "calls", "total s", "mean ms")]
        for name, event, cost in called:
            mean = 1000 * cost.seconds / cost.calls
            rows.append((name, repr(event), cost.calls, cost.seconds, mean))
        run = perf_counter() - self.began if self.seconds is None else self.seconds
        inside = f"{self.inside:.3f} s of {run:.3f} s ({self.inside / run:.1%})"
        return "\n".join([*aligned(rows), f"all handlers: {inside}, by the host's clock"])
