"""What happened to a run and when, as lines of JSON."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ...engine.engine import Engine
from ...engine.events import Events, Stage
from ...engine.moments import Firing
from ...engine.state.state import State
from .environment import environment
from .lines import Lines
from .plain import plain

NAME = "journal.jsonl"


@dataclass(frozen=True, eq=False)
class Journal:
    """Note when a run starts, resumes, saves, stops and fails, with what and where it runs.

    Each is a line of `journal.jsonl`: the wall-clock time, the clocks of the run, and what is to
    say. The first line of each part of a run holds the configuration, the environment and the
    table of handlers. A file that is there is written on, so it tells of all parts, also of those
    that were killed: they have no last line. What cannot be written costs one warning.

    `camshaft report` and `camshaft watch` read it.

    Args:
        directory: Where the run writes, as for `Checkpoint`; it is made if there is none.
        config: What the script was called with: a mapping, a dataclass, an
            `argparse.Namespace`, a config of OmegaConf's. It is copied at once, as plain values,
            which handlers find in `journal.config`. Whoever reads the journal or a report reads
            it, so leave out what is secret.
        interval: Seconds between the signs of life that tell the pace of a run, and until when
            one that was killed was alive.

    Raises:
        TypeError: The configuration is nothing that has names.
        ValueError: The interval is not positive.

    >>> from tempfile import mkdtemp
    >>> journal = Journal(mkdtemp(), config={"lr": 0.1, "sizes": (8, 8)})
    >>> journal.config
    {'lr': 0.1, 'sizes': [8, 8]}
    >>> engine = Engine(lambda state, batch: None, journal)
    >>> state = engine.run([1, 2], max_epochs=1)
    >>> import json
    >>> with Path(journal.directory, "journal.jsonl").open() as file:
    ...     [json.loads(line)["event"] for line in file]
    ['started', 'completed']
    """

    directory: str | os.PathLike[str]
    config: Any = None
    interval: float = 10.0
    rank: ClassVar[int] = 0

    def __post_init__(self) -> None:
        """Copy the configuration; refuse what cannot be meant."""
        if not self.interval > 0:
            raise ValueError(f"Journal(interval={self.interval!r}): needs seconds greater than 0")
        config = {} if self.config is None else plain(self.config)
        if not isinstance(config, dict):
            raise TypeError(
                f"Journal(config={self.config!r}): needs names and values, such as a dict, a "
                "dataclass or the arguments of argparse"
            )
        object.__setattr__(self, "config", config)

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Write a line at each turn of a run, and a sign of life in between."""
        engine.on(Events.STARTED, stage=Stage.REPORT)(self.open)
        # Not by a trigger with seconds=, whose clock would be saved: a run may gain or lose its
        # journal between two starts.
        engine.on(Events.ITERATION_COMPLETED, stage=Stage.REPORT)(self.note_progress)
        engine.on(Events.SAVING, stage=Stage.REPORT)(self.note_save)
        engine.on(Events.COMPLETED, stage=Stage.REPORT)(self.complete)
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.close)

    def open(self, state: State[Any, Any]) -> None:
        """Begin a part of the run: say what runs, where, and how far it is to go."""
        limits = ("max_epochs", "max_iterations", "max_steps", "epoch_length")
        self._write(
            state,
            "resumed" if state.iteration else "started",
            interval=self.interval,
            limits={name: getattr(state, name) for name in limits},
            config=self.config,
            environment=environment(),
            handlers=[[row.moment, *row.cells] for row in state.engine.describe().rows],
        )

    def note_progress(self, state: State[Any, Any]) -> None:
        """Say that the run is alive, if it is time to."""
        pen = state.recall(self, Pen, saved=False)
        if pen.said.is_over(self.interval, state.iteration, local=True):
            pen.said.record(state.iteration, state.iteration)
            self._write(state, "running")

    def note_save(self, state: State[Any, Any]) -> None:
        """Say that a checkpoint was asked for, and why."""
        reasons = dict.fromkeys(reason for reason, _ in state.control.saves)
        self._write(state, "saving", reason=", ".join(reasons))

    def complete(self, state: State[Any, Any]) -> None:
        """Say by what the run came to its end."""
        self._write(state, "completed", reason=state.stop_reason)

    def close(self, state: State[Any, Any]) -> None:
        """Say what ended this part of the run, if it was not its end; close the file."""
        lines = state.recall(self, Pen, saved=False).lines
        if state.error is not None:
            error = f"{type(state.error).__name__}: {state.error}"
            self._write(state, "failed", reason=error[:2000])
        elif lines.is_open and state.is_interrupted:
            self._write(state, "interrupted", reason=state.stop_reason)
        lines.close()

    def _write(self, state: State[Any, Any], event: str, **more: Any) -> None:
        clocks = {"iteration": state.iteration, "step": state.step, "epoch": state.epoch}
        lines = state.recall(self, Pen, saved=False).lines
        lines.write(Path(self.directory, NAME), {"event": event, **clocks, **more})


@dataclass(slots=True)
class Pen:
    """What the journal of a run under way is written with."""

    lines: Lines = field(default_factory=Lines)
    said: Firing = field(default_factory=lambda: Firing(time.monotonic()))
    """When the run was last said to be alive."""
