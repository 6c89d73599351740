"""What happened to a run and when, as a handler that writes it."""

from __future__ import annotations

import os
import time
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from ...engine import Engine, Events, Firing, Stage, State
from ..common import plain
from .environment import environment
from .file import JOURNAL, JournalFile


@dataclass(frozen=True, eq=False)
class Journal:
    """Note when a run starts, resumes, saves, stops and fails, with what and where it runs.

    Each event is a line of `journal.jsonl`: the wall-clock time, the clocks of the run, and the
    details. The first line of each part of a run holds the configuration, the environment and the
    table of handlers. An existing file gets more lines, so it tells of all parts of the run; a part
    that was killed has no last line. A line that cannot be written costs one warning.

    `camshaft report` and `camshaft watch` read it.

    Args:
        directory: Where the run writes, as for `Checkpoint`; made if there is none.
        config: The arguments of the script: a mapping, a dataclass, an `argparse.Namespace`, or a
            config of OmegaConf. The journal copies it at once, as plain values; handlers find the
            copy, which is read-only, in `journal.config`. Everybody who reads the journal or a
            report can read it, so leave out secrets.
        interval: Seconds between the signs of life, which tell the pace of a run, and how long a
            run that was killed was alive.

    Raises:
        TypeError: The configuration has no names for its values.
        ValueError: The interval is not positive.

    >>> from tempfile import mkdtemp
    >>> journal = Journal(mkdtemp(), config={"lr": 0.1, "sizes": (8, 8)})
    >>> journal.config
    {'lr': 0.1, 'sizes': (8, 8)}
    >>> engine = Engine(lambda state, batch: None, journal)
    >>> state = engine.run([1, 2], max_epochs=1)
    >>> import json
    >>> with Path(journal.directory, "journal.jsonl").open() as file:
    ...     [json.loads(line)["event"] for line in file]
    ['started', 'completed']
    """

    writes_files: ClassVar[bool] = True
    directory: str | os.PathLike[str]
    _: KW_ONLY
    config: Any = None
    interval: float = 10.0
    only_on_rank: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if not self.interval > 0:
            raise ValueError(f"Journal(interval={self.interval!r}): needs seconds greater than 0")
        config = {} if self.config is None else plain(self.config)
        if not isinstance(config, dict):
            raise TypeError(
                f"Journal(config={self.config!r}): needs names and values, such as a dict, a "
                "dataclass or the arguments of argparse"
            )
        object.__setattr__(self, "config", ReadOnly.of(config))

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Write a line at each turn of a run, and a sign of life in between."""
        engine.on(Events.STARTED, stage=Stage.REPORT)(self.open)
        # A trigger with seconds= would save its clock with the run, and then a run could not gain
        # or lose its journal between two starts.
        engine.on(Events.ITERATION_COMPLETED, stage=Stage.REPORT)(self.note_progress)
        engine.on(Events.SAVING, stage=Stage.REPORT)(self.note_save)
        engine.on(Events.COMPLETED, stage=Stage.REPORT)(self.complete)
        # Before handlers of REPORT, which may copy the file.
        engine.on(Events.CLOSED, stage=Stage.ACT)(self.close)

    def open(self, state: State[Any, Any]) -> None:
        """Begin a part of the run: tell what runs, where, and its limits."""
        limits = ("max_epochs", "max_iterations", "max_steps", "epoch_length")
        self._write(
            state,
            "resumed" if state.iteration else "started",
            checkpoint=state.control.resumed_from,  # of a fork it names the parent
            interval=self.interval,
            limits={name: getattr(state, name) for name in limits},
            config=self.config,
            environment=environment(),
            handlers=[[row.moment, *row.cells] for row in state.engine.describe().rows],
        )

    def note_progress(self, state: State[Any, Any]) -> None:
        """Tell that the run is alive, once per interval."""
        pen = state.recall(self, Pen, saved=False)
        if pen.said.is_over(self.interval, state.iteration, local=True):
            pen.said.record(state.iteration, state.iteration)
            self._write(state, "running")

    def note_save(self, state: State[Any, Any]) -> None:
        """Tell that a checkpoint was asked for, and why."""
        reasons = dict.fromkeys(reason for reason, _ in state.saves)
        self._write(state, "saving", reason=", ".join(reasons))

    def complete(self, state: State[Any, Any]) -> None:
        """Tell why the run ended."""
        self._write(state, "completed", reason=state.stop_reason)

    def close(self, state: State[Any, Any]) -> None:
        """Tell what failed or interrupted the run, if anything did; close the file."""
        lines = state.recall(self, Pen, saved=False).lines
        if state.error is not None:
            error = f"{type(state.error).__name__}: {state.error}"
            self._write(state, "failed", reason=error[:2000])
        elif lines.is_open and state.is_interrupted:
            self._write(state, "interrupted", reason=state.stop_reason)
        lines.close()

    def note(self, state: State[Any, Any], event: str, **more: Any) -> None:
        """Tell something else of the run: plain values under names of their own."""
        lines = state.recall(self, Pen, saved=False).lines
        was_open = lines.is_open
        self._write(state, event, **more)
        if not was_open:
            lines.close()

    def _write(self, state: State[Any, Any], event: str, **more: Any) -> None:
        clocks = {"iteration": state.iteration, "step": state.step, "epoch": state.epoch}
        lines = state.recall(self, Pen, saved=False).lines
        lines.write(Path(self.directory, JOURNAL), {"event": event, **clocks, **more})


@dataclass(slots=True)
class Pen:
    """The open journal of a run."""

    lines: JournalFile = field(default_factory=JournalFile)
    said: Firing = field(default_factory=lambda: Firing(time.monotonic()))
    """The last sign of life."""


def _refuse(self: ReadOnly, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        "the configuration of a run is read-only, since it says how the run was begun; change "
        "a copy of it: dict(config)"
    )


_REFUSE: Any = _refuse  # for all ways of changing a dict, whatever their types


class ReadOnly(dict[str, Any]):
    """A dict that cannot be changed, made of such dicts, of tuples and of plain values.

    Copies, also those by `copy`, `deepcopy` and `pickle`, are dicts that can be changed.

    >>> config = ReadOnly.of({"model": {"sizes": [8, 8]}})
    >>> config
    {'model': {'sizes': (8, 8)}}
    >>> config["model"]["width"] = 9
    Traceback (most recent call last):
    ...
    TypeError: the configuration of a run is read-only, since it says how the run was begun; change\
 a copy of it: dict(config)
    """

    @classmethod
    def of(cls, value: Any) -> Any:
        """The same plain value, read-only."""
        if isinstance(value, dict):
            items: dict[str, Any] = value
            return cls({key: cls.of(each) for key, each in items.items()})
        if isinstance(value, list):
            elements: list[Any] = value
            return tuple(cls.of(each) for each in elements)
        return value

    __setitem__: Any = _REFUSE
    __delitem__: Any = _REFUSE
    __ior__: Any = _REFUSE
    update: Any = _REFUSE
    setdefault: Any = _REFUSE
    pop: Any = _REFUSE
    popitem: Any = _REFUSE
    clear: Any = _REFUSE

    def __reduce__(self) -> Any:
        return dict, (dict(self),)
