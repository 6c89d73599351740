"""Rows as TensorBoard's events."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ...engine import EventEnum, Trigger
from ..common import AT_EACH_ROW, Embedding, Histogram, Image, Medium, PRCurve, Text
from .logger import LogsRows, need
from .rows import Start

if TYPE_CHECKING:
    from .event_file import EventFile


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
        from .event_file import EventFile, graph_of  # only the rank that writes needs it

        graph = None if self.graph is None or start.is_resumed else graph_of(*self.graph)
        return EventFile(os.fspath(self.directory), start.first, self.hparams, graph)
