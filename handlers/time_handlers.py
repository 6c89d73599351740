"""What each handler costs."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

from ..engine.engine import Engine
from ..engine.events import EventEnum, Events, Stage
from ..engine.signals import Receiver, label
from ..engine.state.state import State

logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class TimeHandlers:
    """Tell what each handler costs in each moment, as a table in the log at the end of a run.

    The time of a handler that evaluates is that of the evaluation, whose handlers have rows of
    their own. Times are the host's: what a device still computes when a handler returns is not in
    them. The moment in which a run begins to load is not timed, nor is what closes after this.
    """

    _times: WeakKeyDictionary[State[Any, Any], Times] = field(
        default_factory=WeakKeyDictionary[State[Any, Any], "Times"], init=False, repr=False
    )

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Time from the first moment to the last."""
        engine.on(Events.LOADING, stage=Stage.MEASURE)(self.begin)
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.report)

    def begin(self, state: State[Any, Any]) -> None:
        """Time all calls from the next moment on."""
        times = self._times[state] = Times()
        times.running.enter_context(state.engine.watching(times.watch))

    def report(self, state: State[Any, Any]) -> None:
        """Time no longer, and log the table."""
        times = self._times[state]
        times.running.close()
        times.seconds = perf_counter() - times.began
        logger.info("what handlers cost\n%s", times.table())

    def table(self, state: State[Any, Any]) -> str:
        """The table of a run, also while it goes on.

        Raises:
            ValueError: The run had no such handler.
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
    """What was timed in one run."""

    costs: dict[tuple[str, EventEnum], Cost] = field(default_factory=dict)
    inside: float = 0.0
    """The seconds in which any handler was at work."""
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
        rows = [("handler", "moment", "calls", "total s", "mean ms")]
        for name, event, cost in called:
            mean = 1000 * cost.seconds / cost.calls
            rows.append((name, repr(event), str(cost.calls), f"{cost.seconds:.3f}", f"{mean:.3f}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        left, right = widths[:2], widths[2:]
        lines = [
            "  ".join([*map(str.ljust, row[:2], left), *map(str.rjust, row[2:], right)])
            for row in rows
        ]
        run = perf_counter() - self.began if self.seconds is None else self.seconds
        share = f"{self.inside:.3f} s of {run:.3f} s ({self.inside / run:.1%})"
        return "\n".join([*lines, f"all handlers: {share}, by the host's clock"])
