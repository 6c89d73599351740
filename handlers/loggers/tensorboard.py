"""Rows as TensorBoard's events."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from ...engine import EventEnum, Trigger
from ..common import AT_EACH_ROW, Embedding
from ..files import refuse_removed
from .logger import ALL, LogsRows, need
from .rows import Row, Start
from .summaries import graph_of, hparams_summary, summary_value, write_embedding

NAME = re.compile(r"events\.out\.tfevents\.(\d{1,12})(?:\.(\d{9})\.)?")
"""The name of an event file: seconds since 1970 and, of ours, nanoseconds."""


@dataclass(frozen=True, eq=False)
class TensorBoard(LogsRows):
    """Write what is new since the last row for TensorBoard, over the iterations.

    Numbers, texts, images, histograms, precision-recall curves and embeddings are shown under the
    names of their metrics. A resumed run opens another file, which tells TensorBoard from which
    iteration on to forget the earlier files; a new run in the same directory makes TensorBoard
    forget them altogether. The files themselves stay as they are.

    Args:
        directory: Where the event files go; made if there is none.
        when: When to write a row, if there is anything new.
        hparams: Hyper-parameters, also nested, for the page that compares runs.
        graph: A model and an example of its input, a tensor or a tuple of them, to draw its graph
            once. Needs `pip install "camshaft[graph]"`.

    Raises:
        ModuleNotFoundError: A graph is asked for, and TensorBoard itself is not installed.
    """

    directory: str | os.PathLike[str]
    _: KW_ONLY
    when: EventEnum | Trigger = AT_EACH_ROW
    hparams: Mapping[str, Any] = field(default_factory=dict[str, Any])
    graph: tuple[Any, Any] | None = None
    shown = ALL

    def __post_init__(self) -> None:
        if self.graph is not None:
            need("tensorboard", "TensorBoard(graph=...)", "graph")

    def writer(self, start: Start) -> EventFile:
        """Open an event file that goes on where the run is."""
        graph = None if self.graph is None or start.is_resumed else graph_of(*self.graph)
        file = EventFile(os.fspath(self.directory))
        try:
            file.begin(start.first, self.hparams, graph)
        except BaseException:
            with suppress(OSError):  # the first error is the one to raise
                file.close()
            raise
        return file


class EventFile:
    """One event file, written at once.

    tensorboardX's `SummaryWriter` has a queue that its `flush` does not empty, so a checkpoint
    could be on the disk before its rows.
    """

    def __init__(self, directory: str) -> None:
        from tensorboardX.record_writer import RecordWriter, directory_check

        # Protocol buffers define their classes at run time, where type checkers cannot see them.
        self._events: Any = import_module("tensorboardX.proto.event_pb2")
        self._summary: Any = import_module("tensorboardX.proto.summary_pb2").Summary
        self._directory = Path(directory)
        directory_check(directory)
        # Readers go by the order of the names. Two runs may begin within a second, and the clock of
        # a later one may be behind.
        seconds, fraction = divmod(max(time.time_ns(), _newest(self._directory) + 1), 10**9)
        name = f"events.out.tfevents.{seconds:010d}.{fraction:09d}.{socket.gethostname()}"
        self._path = os.path.join(directory, name)
        self._writer: Any = RecordWriter(self._path)
        self._epoch = 0

    def begin(self, first: int, hparams: Mapping[str, Any], graph: bytes | None) -> None:
        """Make readers forget earlier files from iteration `first` on; write hparams and graph."""
        start = self._events.SessionLog(status=self._events.SessionLog.START)
        self.event(file_version="brain.Event:2")
        self.event(step=first, session_log=start)
        if hparams:
            self.event(step=0, summary=hparams_summary(hparams))
        if graph is not None:
            self.event(graph_def=graph)

    def write(self, row: Row) -> None:
        """Write a row under the names of its metrics.

        Raises:
            RemovedError: Somebody has removed the file, as the first row of an epoch finds out.
        """
        if row.epoch != self._epoch:
            self._epoch = row.epoch
            self._refuse_removed()
        values = [
            self._summary.Value(tag=name, simple_value=value) for name, value in row.metrics.items()
        ]
        for name, medium in row.media.items():
            if isinstance(medium, Embedding):
                write_embedding(self._directory, name, row.iteration, medium)
            else:
                values.append(summary_value(name, medium))
        self.event(step=row.iteration, summary=self._summary(value=values))

    def event(self, **content: Any) -> None:
        """Write one event; from then on a kill of the process cannot lose it."""
        data = self._events.Event(wall_time=time.time(), **content).SerializeToString()
        self._writer.write(data)
        if self._is_file:
            self._writer._writer.flush()

    def sync(self) -> None:
        """Make all rows survive a crash.

        Raises:
            RemovedError: Somebody has removed the file, and the rows with it.
        """
        self._writer.flush()
        self._refuse_removed()

    def close(self) -> None:
        """Close the file, with all rows on the disk."""
        try:
            self._writer.flush()
        finally:
            self._writer.close()

    @property
    def _is_file(self) -> bool:
        """False for a bucket in a cloud."""
        return hasattr(self._writer._writer, "fileno")

    def _refuse_removed(self) -> None:
        if self._is_file:
            refuse_removed(self._writer._writer.fileno(), Path(self._path))


def _newest(directory: Path) -> int:
    """The latest time in the names of a directory's event files, in nanoseconds.

    Of a name without nanoseconds it is the end of that second.
    """
    found = (NAME.match(path.name) for path in directory.iterdir())
    times = (int(each[1]) * 10**9 + int(each[2] or 10**9 - 1) for each in found if each)
    return max(times, default=0)
