"""Progress as lines of text, with the rate and the time left."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from ..engine import Engine, EventEnum, Events, Stage, State, Trigger
from .common import last_iteration, scalars, warn_of_unknown
from .schedules import rates

logger: logging.Logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False, init=False)
class ConsoleLines:
    """Print a line by a trigger: progress, rate, time left, and metrics that are new.

    The rate is the rate since the last line. The time left is computed from the mean rate since the
    first line of this process, so that neither warm-up nor the time before a resume counts; it is
    left out if the end of the run is unknown. If a line cannot be written, a warning is logged and
    the run goes on.

    Args:
        metrics: The names of the metrics to show; by default all that are numbers.
        units: The units of metrics, by name: `{"memory": "GiB"}`.
        when: When to print a line.
        write: A function of a line: `print`, or `logging.getLogger("train").info`.

    >>> def train_step(state, batch):
    ...     state.metrics["loss"] = 1 / batch
    >>> lines = ConsoleLines(units={"loss": "bits"}, when=Events.EPOCH_COMPLETED, write=print)
    >>> state = Engine(train_step, lines).run([1, 2, 4], max_epochs=2)  # doctest: +ELLIPSIS
    iteration 3/6  epoch 1/2  loss 0.25 bits
    iteration 6/6  epoch 2/2  ... it/s  eta 0:00:00  loss 0.25 bits
    """

    metrics: tuple[str, ...]
    units: Mapping[str, str]
    when: EventEnum | Trigger
    write: Callable[[str], object] = field(repr=False)
    only_on_rank: ClassVar[int] = 0

    def __init__(
        self,
        *metrics: str,
        units: Mapping[str, str] | None = None,
        when: EventEnum | Trigger = Events.ITERATION_COMPLETED(every=50) | Events.EPOCH_COMPLETED,
        write: Callable[[str], object] = partial(print, flush=True),
    ) -> None:
        for name in metrics:
            if not isinstance(name, str):
                raise TypeError(f"ConsoleLines got {name!r} for a metric; it needs names: 'loss'")
        vars(self).update(metrics=metrics, units=dict(units or {}), when=when, write=write)

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Print by the trigger."""
        engine.on(Events.LOADING, stage=Stage.REPORT)(self.begin)
        engine.on(self.when, stage=Stage.REPORT)(self.print)
        if self.metrics:
            engine.on(Events.EPOCH_COMPLETED, stage=Stage.REPORT)(self.suspect)
            engine.on(Events.COMPLETED, stage=Stage.REPORT)(self.report_missing)

    def begin(self, state: State[Any, Any]) -> None:
        """Leave out what the last line has, also if an earlier process has printed it."""
        name = state.engine.name_of(self)
        state.metrics.looked_at.setdefault(name, state.metrics.writes)

    def print(self, state: State[Any, Any]) -> None:
        """Print a line."""
        pace = state.recall(self, Pace, saved=False)
        name, looked_at = state.engine.name_of(self), state.metrics.looked_at
        new = state.metrics.since(looked_at.get(name, 0))
        if self.metrics:
            new = rates(state) | new
        chosen = {name: new[name] for name in self.metrics or new if name in new}
        now, looked_at[name] = time.monotonic(), state.metrics.writes
        parts = [_counted("iteration", state.iteration, last_iteration(state))]
        parts.append(_counted("epoch", state.epoch, state.max_epochs))
        if state.max_steps is not None:
            parts.append(_counted("step", state.step, state.max_steps))
        parts += pace.parts(state, now)
        for name, value in scalars(chosen).items():
            parts.append(f"{name} {value:.4g} {self.units.get(name, '')}".rstrip())
        try:
            self.write("  ".join(parts))
        except Exception as error:  # a pipe that nobody reads, a full disk
            if not pace.warned:
                pace.warned = True
                kind = type(error).__name__
                logger.warning("ConsoleLines lost a line: %s: %s; the run goes on", kind, error)

    def suspect(self, state: State[Any, Any], *, at_end: bool = False) -> None:
        """Warn of a name that looks misspelled; at the end, of all names without a metric."""
        known, unknown = rates(state) | state.metrics, state.recall(self, Pace, saved=False).unknown
        warn_of_unknown(self.metrics, known, "ConsoleLines", unknown, at_end=at_end)

    def report_missing(self, state: State[Any, Any]) -> None:
        """Warn of names that no metric had in the whole run."""
        self.suspect(state, at_end=True)


@dataclass(slots=True)
class Pace:
    """The speed of the run in this process."""

    began: tuple[float, int, int] | None = None
    """Time, iteration and step of the first line."""
    last: tuple[float, int, int] | None = None
    """Time, iteration and step of the last line."""
    warned: bool = False
    """True after the warning that a line could not be written."""
    unknown: set[str] = field(default_factory=set[str])
    """The unknown metric names that were already warned about."""

    def parts(self, state: State[Any, Any], now: float) -> list[str]:
        """The rate since the last line and the time left, if they are known."""
        here, found = (now, state.iteration, state.step), list[str]()
        if self.began and self.last:
            if state.iteration > self.last[1]:
                rate = (state.iteration - self.last[1]) / max(now - self.last[0], 1e-9)
                found.append(f"{rate:.1f} it/s" if rate >= 1 else f"{1 / rate:.1f} s/it")
            done = state.iteration - self.began[1]
            left = remaining(state, done, state.step - self.began[2])
            if done and left is not None:
                seconds = round(left * (now - self.began[0]) / done)
                found.append(f"eta {timedelta(seconds=seconds)}")
        self.began, self.last = self.began or here, here
        return found


def remaining(state: State[Any, Any], iterations: int, steps: int) -> float | None:
    """The iterations left; None if unknown.

    `steps` optimizer steps were made in `iterations` iterations: this converts `max_steps`.
    """
    left: list[float] = []
    if (total := last_iteration(state)) is not None:
        left.append(total - state.iteration)
    if state.max_steps is not None and steps:
        left.append((state.max_steps - state.step) * iterations / steps)
    return min(left) if left else None


def _counted(name: str, count: int, most: int | None) -> str:
    return f"{name} {count}" if most is None else f"{name} {count}/{most}"
