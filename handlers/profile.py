"""Profiles of a few iterations, by torch.profiler."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from torch import profiler

from ..engine import Engine, EventEnum, Events, Receiver, Stage, State, Trigger, label, ranks

logger: logging.Logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class Profile:
    """Profile a few iterations; write traces that TensorBoard and ui.perfetto.dev show.

    Each cycle waits for `wait` iterations, warms up for `warmup`, and writes a trace of `active`
    iterations: operators, the marks `ProfilerStep#n`, and each call of a handler by its event and
    name. The operators that took the most time are logged. Between and after cycles nothing is
    profiled.

    Args:
        directory: Where traces are written, as `rank0.<time>.pt.trace.json`.
        when: When to begin, if no profile is under way.
        wait: Iterations before each cycle.
        warmup: Iterations to profile and discard, since the first ones take longer.
        active: Iterations to profile.
        repeat: The number of cycles.
        rank: The rank to profile; None for all ranks.
        record_shapes: True to record the shapes of inputs.
        profile_memory: True to record allocations of memory.
        with_stack: True to record lines of source code.

    Raises:
        ValueError: A number of iterations or cycles is too small.
    """

    writes_files: ClassVar[bool] = True
    directory: str | Path
    _: KW_ONLY
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
        for name, least in {"wait": 0, "warmup": 0, "active": 1, "repeat": 1}.items():
            if (number := getattr(self, name)) < least:
                raise ValueError(f"Profile({name}={number!r}): needs at least {least}")

    @property
    def only_on_rank(self) -> int | None:
        """The rank that is profiled; None for each."""
        return self.rank

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Begin by the trigger; each profiled step ends with the last handler of its iteration."""
        engine.on(Events.ITERATION_COMPLETED, stage=Stage.REPORT)(self.step)
        engine.on(self.when, stage=Stage.REPORT)(self.begin)
        engine.on(Events.CLOSED)(self.end)

    def begin(self, state: State[Any, Any]) -> None:
        """Begin the first cycle, unless one is under way."""
        session = state.recall(self, Profiling, saved=False)
        if session.profiler is None:
            session.cycles = self.repeat
            self._start(state, session)

    def step(self, state: State[Any, Any]) -> None:
        """Mark the end of an iteration; end the cycle after its last one."""
        session = state.recall(self, Profiling, saved=False)
        if session.profiler is not None:
            session.profiler.step()
            session.left -= 1
            if not session.left:
                self.end(state)
                session.cycles -= 1
                if session.cycles:
                    self._start(state, session)

    def end(self, state: State[Any, Any]) -> None:
        """End the profile under way, and log the slowest operators."""
        session = state.recall(self, Profiling, saved=False)
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

    def _start(self, state: State[Any, Any], session: Profiling) -> None:
        """Begin a cycle with its own profiler: torch warns if one profiler has several cycles."""
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
class Profiling:
    """A profile under way."""

    profiler: profiler.profile | None = None
    running: ExitStack = field(default_factory=ExitStack)
    left: int = 0
    """Iterations left in this cycle."""
    cycles: int = 0
    """Cycles left, including this one."""
    table: str = ""
    """The slowest operators of the trace; set when the trace is written."""


def annotated(event: EventEnum, receiver: Receiver, function: Receiver) -> Receiver:
    """Call `function` with its name in the trace."""
    name = f"{event!r} {label(receiver)}"

    def call(state: State[Any, Any]) -> None:
        with profiler.record_function(name):
            function(state)

    return call


def summary(profile: profiler.profile) -> str:
    """The operators that took the most time, on the device if there is one."""
    on_device = profiler.ProfilerActivity.CUDA in profile.activities
    by = "self_cuda_time_total" if on_device else "self_cpu_time_total"
    table: str = profile.key_averages().table(sort_by=by, row_limit=10)
    return table
