"""What the loggers for trackers have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ....engine import EventEnum, Trigger
from ...common import AT_EACH_ROW, Histogram, Image, Medium, Text, plain
from ..images import as_bytes
from ..logger import LogsRows, need


@dataclass(frozen=True, eq=False)
class LogsToTracker(LogsRows):
    """A logger that hands rows to the client of a tracker, by a thread."""

    project: str
    """The project in the tracker."""
    when: EventEnum | Trigger = field(default=AT_EACH_ROW, kw_only=True)
    """When to write a row, if there is anything new."""
    hparams: Mapping[str, Any] = field(default_factory=dict[str, Any], kw_only=True)
    """Hyper-parameters, also nested."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], kw_only=True)
    """More arguments of the client."""
    background = True
    library: ClassVar[str]
    """The client's module."""
    extra: ClassVar[str]
    """What to install: `pip install "camshaft[<extra>]"`."""

    def __post_init__(self) -> None:
        need(self.library, type(self).__name__, self.extra)

    @property
    def config(self) -> dict[str, Any]:
        """The hyper-parameters as plain values."""
        values: dict[str, Any] = plain(self.hparams)
        return values


def shown(medium: Medium, client: Any, text: Callable[[str], Any]) -> Any:
    """A medium in the form of W&B's client, or of one with the same names.

    Args:
        medium: A text, an image or a histogram.
        client: The client's module.
        text: Gives a text its form.
    """
    if isinstance(medium, Image):
        return client.Image(as_bytes(medium).numpy(), caption=medium.caption or None)
    if isinstance(medium, Histogram):
        counts, edges = medium.counts.tolist(), medium.edges.tolist()
        return client.Histogram(np_histogram=(counts, edges))
    assert isinstance(medium, Text)
    return text(medium.text)
