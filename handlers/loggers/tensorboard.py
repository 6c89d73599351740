"""Rows as TensorBoard's events."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from ...engine.engine import Engine
from ...engine.events import EventEnum, Trigger
from ..common.media import Embedding, Medium
from .graph import graph_of
from .logger import ALL, WHEN, attach
from .optional import need
from .projector import write_embedding
from .rows import Row
from .summaries import hparams_summary, summary_value
from .writer import Start


@dataclass(frozen=True, eq=False)
class TensorBoard:
    """Write what is new since the last row for TensorBoard, over the iterations.

    Numbers, texts, images, histograms, precision-recall curves and embeddings are shown under the
    names of their metrics. A run that is resumed opens another file, in which TensorBoard reads
    from which iteration on to forget what the earlier ones hold; one that starts anew in the same
    directory makes it forget them altogether. The files themselves stay as they are.

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
    when: EventEnum | Trigger = WHEN
    hparams: Mapping[str, Any] = field(default_factory=dict[str, Any])
    graph: tuple[Any, Any] | None = None
    background: bool = field(default=False, init=False, repr=False)
    shown: tuple[type[Medium], ...] = field(default=ALL, init=False, repr=False)
    rank: ClassVar[int] = 0

    def __post_init__(self) -> None:
        """See whether a graph can be drawn."""
        if self.graph is not None:
            need("tensorboard", "TensorBoard(graph=...)", "graph")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Write rows by the trigger; have them on the disk before a checkpoint counts on them."""
        attach(self, engine)

    def open(self, start: Start) -> EventFile:
        """Open an event file that goes on where the run is."""
        graph = None if self.graph is None or start.first else graph_of(*self.graph)
        file = EventFile(os.fspath(self.directory))
        try:
            file.begin(start.first, self.hparams, graph)
        except BaseException:
            with suppress(OSError):  # what is wrong is told already
                file.close()
            raise
        return file


class EventFile:
    """One event file: written at once, where tensorboardX's SummaryWriter has a queue.

    That queue is not emptied by `flush`, so a checkpoint could be on the disk before its rows.
    """

    def __init__(self, directory: str) -> None:
        """Make a file."""
        from tensorboardX.record_writer import RecordWriter, directory_check

        # Protocol buffers define their classes at run time, where type checkers cannot see them.
        self._events: Any = import_module("tensorboardX.proto.event_pb2")
        self._summary: Any = import_module("tensorboardX.proto.summary_pb2").Summary
        self._directory = Path(directory)
        directory_check(directory)
        # Readers go by the order of the names, and two runs may begin within a second.
        seconds, fraction = divmod(time.time_ns(), 10**9)
        name = f"events.out.tfevents.{seconds:010d}.{fraction:09d}.{socket.gethostname()}"
        self._writer: Any = RecordWriter(os.path.join(directory, name))

    def begin(self, first: int, hparams: Mapping[str, Any], graph: bytes | None) -> None:
        """Tell readers to forget earlier files from iteration `first` on; write what is there once.

        Args:
            first: The iteration.
            hparams: Hyper-parameters, or none.
            graph: The model's graph as a serialised `GraphDef`, or none.
        """
        start = self._events.SessionLog(status=self._events.SessionLog.START)
        self.event(file_version="brain.Event:2")
        self.event(step=first, session_log=start)
        if hparams:
            self.event(step=0, summary=hparams_summary(hparams))
        if graph is not None:
            self.event(graph_def=graph)

    def write(self, row: Row) -> None:
        """Write what is new under its names."""
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
        """Write one event, which a kill of the process cannot take any more."""
        data = self._events.Event(wall_time=time.time(), **content).SerializeToString()
        self._writer.write(data)
        if hasattr(self._writer._writer, "fileno"):  # a file here, no bucket elsewhere
            self._writer._writer.flush()

    def sync(self) -> None:
        """Have all rows on the disk."""
        self._writer.flush()

    def close(self) -> None:
        """Close the file, with all rows on the disk."""
        try:
            self._writer.flush()
        finally:
            self._writer.close()
