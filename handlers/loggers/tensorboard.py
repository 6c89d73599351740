"""Rows of metrics as TensorBoard's events."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

from ...engine.engine import Engine
from ...engine.events import EventEnum, Events, Stage, Trigger
from ...engine.state import State
from .bookmark import Bookmark, Row

FLUSH_SECONDS = 10.0


@dataclass(frozen=True, eq=False)
class TensorBoard:
    """Write metrics for TensorBoard: what is new since the last row, over the iterations.

    A run that is resumed opens another file, in which TensorBoard reads from which iteration on
    to forget what the earlier ones hold; one that starts anew in the same directory makes it
    forget them altogether. The files themselves stay as they are. Metrics that are more than one
    number are left out.

    Args:
        directory: Where the event files go; made if there is none.
        when: When to write a row, if there is anything new.
    """

    directory: str | os.PathLike[str]
    when: EventEnum | Trigger = (
        Events.ITERATION_COMPLETED(every=50) | Events.EPOCH_COMPLETED | Events.COMPLETED
    )
    rank: ClassVar[int] = 0

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Write rows by the trigger; have them on the disk before a checkpoint counts on them."""
        engine.on(Events.STARTED, stage=Stage.REPORT)(self.open)
        engine.on(self.when, stage=Stage.REPORT)(self.write)
        engine.on(Events.SAVING, stage=Stage.MEASURE)(self.sync)
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.close)

    def open(self, state: State[Any, Any]) -> None:
        """Open an event file that goes on where the run is."""
        bookmark = state.recall(self, Bookmark)
        log = state.recall(self, Log, saved=False)
        log.file = EventFile(
            os.fspath(self.directory), bookmark.cut(state) if state.iteration else 0
        )
        for row in bookmark.rows():
            log.file.write(row)

    def write(self, state: State[Any, Any]) -> None:
        """Write what is new."""
        file = state.recall(self, Log, saved=False).file
        if file is not None and (row := state.recall(self, Bookmark).next_row(state)):
            file.write(row)

    def sync(self, state: State[Any, Any]) -> None:
        """Have all rows on the disk."""
        if file := state.recall(self, Log, saved=False).file:
            file.flush()

    def close(self, state: State[Any, Any]) -> None:
        """Close the event file, with all rows in it."""
        if file := state.recall(self, Log, saved=False).file:
            file.close()


class EventFile:
    """One event file: written at once, where tensorboardX's SummaryWriter has a queue.

    That queue is not emptied by `flush`, so a checkpoint could be on the disk before its rows.
    """

    def __init__(self, directory: str, first: int) -> None:
        """Make a file that tells readers to forget earlier files from iteration `first` on."""
        from tensorboardX.record_writer import RecordWriter, directory_check

        # Protocol buffers define their classes at run time, where type checkers cannot see them.
        self._events: Any = import_module("tensorboardX.proto.event_pb2")
        self._summary: Any = import_module("tensorboardX.proto.summary_pb2").Summary
        directory_check(directory)
        # Readers go by the order of the names, and two runs may begin within a second.
        seconds, fraction = divmod(time.time_ns(), 10**9)
        name = f"events.out.tfevents.{seconds:010d}.{fraction:09d}.{socket.gethostname()}"
        self._writer: Any = RecordWriter(os.path.join(directory, name))
        start = self._events.SessionLog.START
        self._write(file_version="brain.Event:2")
        self._write(step=first, session_log=self._events.SessionLog(status=start))
        self.flush()

    def write(self, row: Row) -> None:
        """Write the metrics of a row, under their names."""
        values = [
            self._summary.Value(tag=name, simple_value=value) for name, value in row.metrics.items()
        ]
        self._write(step=row.iteration, summary=self._summary(value=values))
        if time.monotonic() > self._flushed + FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Have everything on the disk."""
        self._writer.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Flush, and close the file."""
        self.flush()
        self._writer.close()

    def _write(self, **event: Any) -> None:
        data = self._events.Event(wall_time=time.time(), **event).SerializeToString()
        self._writer.write(data)


@dataclass(slots=True)
class Log:
    """The event file of a run under way; None before it is opened."""

    file: EventFile | None = None
