"""Rows as TensorBoard's events: numbers, media, embeddings, hyper-parameters and graphs."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from ....engine import EventEnum, Trigger
from ....engine.modules import untouched
from ...common import (
    AT_EACH_ROW,
    Embedding,
    Histogram,
    Image,
    Medium,
    PRCurve,
    Text,
    as_bytes,
    flat_hparams,
    grid,
    need,
    png,
)
from ...files import (
    LARGEST_TEXT,
    make_directory_inside,
    refuse_removed,
    regular,
    replacing,
    safe_name,
)
from ...loggers import LogsRows, Row, Start

logger: logging.Logger = logging.getLogger("camshaft")
CONFIG = "projector_config.pbtxt"
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
    shown: ClassVar[tuple[type[Medium], ...]] = (Text, Image, Histogram, PRCurve, Embedding)

    def __post_init__(self) -> None:
        if self.graph is not None:
            need("tensorboard", "TensorBoard(graph=...)", "graph")

    def writer(self, start: Start) -> EventFile:
        """Open an event file that goes on where the run is."""
        graph = None if self.graph is None or start.is_resumed else graph_of(*self.graph)
        directory = os.path.join(start.folder, self.directory)
        return EventFile(directory, start.first, self.hparams, graph)


class EventFile:
    """One event file, written at once.

    tensorboardX's `SummaryWriter` has a queue that its `flush` does not empty, so a checkpoint
    could be on the disk before its rows.
    """

    def __init__(
        self, directory: str, first: int, hparams: Mapping[str, Any], graph: bytes | None
    ) -> None:
        """Make readers forget earlier files from iteration `first` on; write hparams and graph."""
        from tensorboardX.record_writer import RecordWriter, directory_check

        # Protocol buffers define their classes at run time, where type checkers cannot see them.
        self._events: Any = import_module("tensorboardX.proto.event_pb2")
        self._summary: Any = import_module("tensorboardX.proto.summary_pb2").Summary
        self._directory = Path(directory)
        directory_check(directory)
        # Readers sort files by name. Two runs may begin within a second, and the clock of
        # a later one may be behind.
        seconds, fraction = divmod(max(time.time_ns(), _newest(self._directory) + 1), 10**9)
        name = f"events.out.tfevents.{seconds:010d}.{fraction:09d}.{socket.gethostname()}"
        self._path = os.path.join(directory, name)
        self._writer: Any = RecordWriter(self._path)
        self._epoch = 0
        try:
            self._begin(first, hparams, graph)
        except BaseException:
            with suppress(OSError):  # the first error is the one to raise
                self.close()
            raise

    def _begin(self, first: int, hparams: Mapping[str, Any], graph: bytes | None) -> None:
        start = self._events.SessionLog(status=self._events.SessionLog.START)
        self.event(file_version="brain.Event:2")
        self.event(step=first, session_log=start)
        if hparams:
            # The beginning of a session, from which TensorBoard finds the metrics.
            summary: Any = import_module("tensorboardX.summary")
            _, begun, _ = summary.hparams(flat_hparams(hparams), {})
            self.event(step=0, summary=begun)
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

    A name without nanoseconds counts as the end of its second.
    """
    found = (NAME.match(path.name) for path in directory.iterdir())
    times = (int(each[1]) * 10**9 + int(each[2] or 10**9 - 1) for each in found if each)
    return max(times, default=0)


def summary_value(name: str, medium: Medium) -> Any:
    """One value of a summary, under a name."""
    summary: Any = import_module("tensorboardX.summary")
    if isinstance(medium, Image):
        height, width, channels = as_bytes(medium).shape
        image = summary.Summary.Image(
            height=height, width=width, colorspace=channels, encoded_image_string=png(medium)
        )
        return summary.Summary.Value(tag=name, image=image)
    if isinstance(medium, Text):
        made = summary.text(name, medium.text)
    elif isinstance(medium, Histogram):
        made = _histogram(summary, name, medium)
    elif isinstance(medium, PRCurve):
        made = summary.pr_curve(name, medium.targets.numpy(), medium.scores.double().numpy())
    else:
        raise TypeError(f"a {type(medium).__name__} is no summary")
    return made.value[0]


def _histogram(summary: Any, name: str, histogram: Histogram) -> Any:
    counts, edges = histogram.counts.double(), histogram.edges.double()
    middles = (edges[1:] + edges[:-1]) / 2
    return summary.histogram_raw(
        name,
        min=edges[0].item(),
        max=edges[-1].item(),
        num=counts.sum().item(),
        sum=(counts * middles).sum().item(),
        sum_squares=(counts * middles**2).sum().item(),
        # TensorBoard takes the upper ends of the ranges, the first of which has no lower end.
        bucket_limits=edges.tolist(),
        bucket_counts=[0.0, *counts.tolist()],
    )


def graph_of(model: Any, inputs: Any) -> bytes | None:
    """A model's graph as a serialised `GraphDef`; the model is run once, and left untouched.

    None, and a warning, if torch cannot trace the model: the log does without its graph then.

    The only public way to this graph is torch's `SummaryWriter`, which has a queue and writes a
    file of its own; so it writes to a folder that is thrown away.

    Args:
        model: The module.
        inputs: An example of its inputs: a tensor, or a tuple of them.
    """
    board: Any = import_module("torch.utils.tensorboard")
    reader: Any = import_module("tensorboard.backend.event_processing.event_accumulator")
    try:
        with (
            untouched({"model": model}, None),
            warnings.catch_warnings(),
            TemporaryDirectory() as folder,
        ):
            warnings.simplefilter("ignore")  # of tracing, which torch would like to remove
            with board.SummaryWriter(folder) as writer:
                writer.add_graph(model, inputs)
            graph = reader.EventAccumulator(folder).Reload().Graph()
    except Exception as error:
        logger.warning("TensorBoard cannot draw the model's graph: %s", error)
        return None
    serialised: bytes = graph.SerializeToString()
    return serialised


def write_embedding(directory: Path, name: str, iteration: int, embedding: Embedding) -> None:
    """Write the points into a folder of their own, and its name into the projector's settings.

    They replace points of the same name and iteration.
    """
    names = ("embeddings", safe_name(name), str(iteration))
    inside, files = "/".join(names), dict[str, bytes]()
    rows = ("\t".join(map(repr, row)) for row in embedding.vectors.double().tolist())
    files["tensors.tsv"] = _lines(rows)
    settings = [f"  tensor_name: {json.dumps(f'{name}:{iteration}')}"]
    settings.append(f'  tensor_path: "{inside}/tensors.tsv"')
    if embedding.labels is not None:
        files["metadata.tsv"] = _lines(" ".join(each.split()) for each in embedding.labels)
        settings.append(f'  metadata_path: "{inside}/metadata.tsv"')
    if embedding.images is not None:
        height, width = embedding.images.shape[-2:]
        files["sprite.png"] = png(Image(grid(embedding.images)))
        settings.append(f'  sprite {{ image_path: "{inside}/sprite.png"')
        settings.append(f"    single_image_dim: {width} single_image_dim: {height} }}")
    folder = make_directory_inside(directory, *names)
    for each, content in files.items():
        with replacing(folder / each) as file:
            file.write(content)
    _add("embeddings {\n" + "\n".join(settings) + "\n}\n", directory / CONFIG)


def _add(entry: str, config: Path) -> None:
    known = ""
    with suppress(FileNotFoundError), regular(config) as file:
        known = file.read(LARGEST_TEXT).decode()
    if entry not in known:
        with replacing(config) as file:
            file.write((known + entry).encode())


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
