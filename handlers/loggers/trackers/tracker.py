"""What the loggers for trackers have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ....engine import EventEnum, Trigger
from ...common import AT_EACH_ROW, plain
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
