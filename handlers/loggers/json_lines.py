"""Rows of metrics as lines of JSON."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, TextIO

from ...engine.engine import Engine
from ...engine.events import EventEnum, Events, Stage, Trigger
from ...engine.state import State
from .bookmark import Bookmark, Row

logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class JSONLines:
    """Write metrics to a file, one JSON object a line: the clocks, and what is new since the last.

    Each row is on its way to the disk as soon as it is written, so a kill loses at most the row
    in progress. A run that is resumed drops the rows past the point it is resumed from; one that
    starts anew moves an earlier run's file to `<path>.1`, or the next number that is free. What
    is no number is written as `"NaN"`, `"Infinity"` or `"-Infinity"`, which every JSON reader
    accepts and `float()` turns back. Metrics that are more than one number are left out, and so
    is one that is named like a clock.

    Args:
        path: The file; its folder is made if there is none.
        when: When to write a row, if there is anything new.

    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp(), "rows.jsonl")
    >>> def train_step(state, batch):
    ...     state.metrics["loss"] = 1 / batch
    >>> engine = Engine(train_step, JSONLines(path, when=Events.ITERATION_COMPLETED))
    >>> state = engine.run([1, 2], max_epochs=1)
    >>> print(path.read_text(), end="")
    {"iteration": 1, "step": 0, "epoch": 1, "loss": 1.0}
    {"iteration": 2, "step": 0, "epoch": 1, "loss": 0.5}
    """

    path: str | os.PathLike[str]
    when: EventEnum | Trigger = (
        Events.ITERATION_COMPLETED(every=50) | Events.EPOCH_COMPLETED | Events.COMPLETED
    )
    rank: ClassVar[int] = 0

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Write rows by the trigger; have them on the disk before a checkpoint counts on them.

        Raises:
            IsADirectoryError: The path is a directory.
        """
        if Path(self.path).is_dir():
            raise IsADirectoryError(
                f"JSONLines({str(self.path)!r}) is a directory; name a file in it: "
                f"JSONLines({str(Path(self.path) / 'rows.jsonl')!r})"
            )
        engine.on(Events.STARTED, stage=Stage.REPORT)(self.open)
        engine.on(self.when, stage=Stage.REPORT)(self.write)
        engine.on(Events.SAVING, stage=Stage.MEASURE)(self.sync)
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.close)

    def open(self, state: State[Any, Any]) -> None:
        """Open the file where the run is; the rows of another run are moved aside.

        Raises:
            ValueError: A run is resumed, and the file holds other things than rows.
        """
        path, bookmark = Path(self.path), state.recall(self, Bookmark)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            if state.iteration:
                _cut(path, bookmark.cut(state))
            else:
                _move_aside(path)
        log = state.recall(self, Log, saved=False)
        log.file = path.open("a", encoding="utf-8", buffering=1)
        log.file.writelines(map(_line, bookmark.rows()))

    def write(self, state: State[Any, Any]) -> None:
        """Write what is new."""
        file = state.recall(self, Log, saved=False).file
        if file is not None and (row := state.recall(self, Bookmark).next_row(state)):
            file.write(_line(row))

    def sync(self, state: State[Any, Any]) -> None:
        """Have all rows on the disk."""
        if file := state.recall(self, Log, saved=False).file:
            os.fsync(file.fileno())

    def close(self, state: State[Any, Any]) -> None:
        """Close the file."""
        if file := state.recall(self, Log, saved=False).file:
            file.close()


@dataclass(slots=True)
class Log:
    """The file of a run under way; None before it is opened."""

    file: TextIO | None = None


def _line(row: Row) -> str:
    clocks = {"iteration": row.iteration, "step": row.step, "epoch": row.epoch}
    # Bare NaN and Infinity, which Python would write, are no JSON.
    metrics = {
        name: value if math.isfinite(value) else json.dumps(value)
        for name, value in row.metrics.items()
    }
    return json.dumps(clocks | metrics | clocks, allow_nan=False) + "\n"


def _cut(path: Path, first: int) -> None:
    """Drop the rows from iteration `first` on, all at once: the file is the old or the new one."""
    draft = path.with_name(f"{path.name}.tmp")
    with draft.open("w", encoding="utf-8") as file:
        file.writelines(_lines_before(first, path))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _lines_before(first: int, path: Path) -> Iterator[str]:
    torn = 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if (iteration := _iteration(line)) is None:
                torn = torn or number
            elif torn:
                raise ValueError(
                    f"line {torn} of {path} is no row of a JSONLines log, which would be cut off "
                    "here to resume the run; move the file away, or give the log another path"
                )
            elif iteration < first:
                yield line.rstrip("\n") + "\n"


def _iteration(line: str) -> int | None:
    """The iteration of a row; None if the line is torn or no row at all."""
    try:
        return int(json.loads(line)["iteration"])
    except (ValueError, TypeError, KeyError):
        return None


def _move_aside(path: Path) -> None:
    if path.stat().st_size:
        names = (path.with_name(f"{path.name}.{number}") for number in count(1))
        aside = next(name for name in names if not name.exists())
        path.rename(aside)
        logger.warning("JSONLines: %s holds the rows of another run; moved to %s", path, aside)
