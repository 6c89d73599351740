"""Profiles of some iterations, by torch.profiler."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import profiler

from ..engine import ranks
from ..engine.engine import Engine
from ..engine.events import EventEnum, Events, Stage, Trigger
from ..engine.signals import Receiver, label
from ..engine.state import State

logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class Profile:
    """Profile some iterations; write traces that TensorBoard and ui.perfetto.dev show.

    Each cycle lets `wait` iterations pass, warms up, and writes a trace of `active` iterations:
    operators, the marks `ProfilerStep#n`, and each call of a handler by its event and name; the
    operators that took most are in the log. Between and after cycles nothing is profiled, nor
    when the run has ended or failed before.

    Args:
        directory: Where traces are written, as `rank0.<time>.pt.trace.json`.
        when: When to begin, if no profile is under way.
        wait: Iterations to let pass.
        warmup: Iterations to profile and forget, since the first ones cost more.
        active: Iterations to profile.
        repeat: How many cycles.
        rank: The rank that is profiled; None for all of them.
        record_shapes: Tell the shapes of inputs.
        profile_memory: Tell what is allocated.
        with_stack: Tell the lines of source.

    Raises:
        ValueError: A number of iterations or cycles is too small.
    """

    directory: str | Path
    when: EventEnum | Trigger = Events.STARTED
    wait: int = 1
    warmup: int = 1
    active: int = 3
    repeat: int = 1
    rank: int | None = 0
    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False

    def __post_init__(self) -> None:
        """Refuse a schedule that profiles nothing."""
        for name, least in {"wait": 0, "warmup": 0, "active": 1, "repeat": 1}.items():
            if (number := getattr(self, name)) < least:
                raise ValueError(f"Profile({name}={number!r}): needs at least {least}")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Begin when the trigger fires; a step ends when everything in its iteration has."""
        engine.on(Events.ITERATION_COMPLETED, stage=Stage.REPORT)(self.step)
        engine.on(self.when, stage=Stage.REPORT)(self.begin)
        engine.on(Events.CLOSED)(self.end)

    def begin(self, state: State[Any, Any]) -> None:
        """Begin the first cycle, unless one is under way."""
        session = state.recall(self, Session, saved=False)
        if session.profiler is None:
            session.cycles = self.repeat
            self._start(state, session)

    def step(self, state: State[Any, Any]) -> None:
        """Mark the end of an iteration; end the cycle after its last one."""
        session = state.recall(self, Session, saved=False)
        if session.profiler is not None:
            session.profiler.step()
            session.left -= 1
            if not session.left:
                self.end(state)
                session.cycles -= 1
                if session.cycles:
                    self._start(state, session)

    def end(self, state: State[Any, Any]) -> None:
        """End the profile under way, and log what it found."""
        session = state.recall(self, Session, saved=False)
        if session.profiler is None:
            return
        session.profiler = None
        session.running.close()
        if session.table:
            logger.info("profiled into %s\n%s", self.directory, session.table)
        else:
            logger.warning(
                "Profile: the run ended before an iteration was profiled; "
                "choose a smaller wait= or warmup=, or begin earlier"
            )

    def _start(self, state: State[Any, Any], session: Session) -> None:
        """Begin a cycle, with a profiler of its own: one for all warns that it forgets."""
        Path(self.directory).mkdir(parents=True, exist_ok=True)
        export = profiler.tensorboard_trace_handler(str(self.directory), f"rank{ranks.rank()}")
        session.left, session.table = self.wait + self.warmup + self.active, ""

        def ready(profile: profiler.profile) -> None:
            export(profile)
            session.table = summary(profile)

        profile = profiler.profile(
            schedule=profiler.schedule(
                wait=self.wait, warmup=self.warmup, active=self.active, repeat=1
            ),
            on_trace_ready=ready,
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
        )
        with ExitStack() as stack:
            stack.enter_context(state.engine.watching(annotated))
            profile.start()
            stack.callback(profile.stop)
            session.profiler, session.running = profile, stack.pop_all()


@dataclass(slots=True)
class Session:
    """A profile under way."""

    profiler: profiler.profile | None = None
    running: ExitStack = field(default_factory=ExitStack)
    left: int = 0
    """Iterations until its cycle is over."""
    cycles: int = 0
    """Cycles until it is over, this one included."""
    table: str = ""
    """The operators of its trace, once that is written."""


def annotated(event: EventEnum, receiver: Receiver, function: Receiver) -> Receiver:
    """Call `function` under its name, so that traces show it."""
    name = f"{event!r} {label(receiver)}"

    def call(state: State[Any, Any]) -> None:
        with profiler.record_function(name):
            function(state)

    return call


def summary(profile: profiler.profile) -> str:
    """The operators that took most, of the device where there is one."""
    on_device = profiler.ProfilerActivity.CUDA in profile.activities
    by = "self_cuda_time_total" if on_device else "self_cpu_time_total"
    table: str = profile.key_averages().table(sort_by=by, row_limit=10)
    return table
