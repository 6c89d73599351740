"""Rows for Trackio."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ...common import Histogram, Image, Text
from ..rows import Row, Start
from .tracker import LogsToTracker, shown


@dataclass(frozen=True, eq=False)
class Trackio(LogsToTracker):
    """Write what is new since the last row for Trackio, over the iterations.

    Without a Space or a server, Trackio writes to a database of this machine, in the folder that
    the environment variable `TRACKIO_DIR` names. A resumed run continues the same run of Trackio,
    which keeps rows that come twice: they are the same. A thread writes, and an error of Trackio
    costs a warning, not the run.

    Needs `pip install "camshaft[trackio]"`.

    Args:
        project: The project in Trackio.
        when: When to write a row, if there is anything new.
        hparams: Hyper-parameters, also nested.
        options: More arguments of `trackio.init`: `{"name": ..., "space_id": ..., "group": ...}`.

    Raises:
        ModuleNotFoundError: trackio is not installed.
    """

    shown = (Text, Image, Histogram)
    library = "trackio"
    extra = "trackio"

    def writer(self, start: Start) -> TrackioRun:
        """Begin a run, or continue it."""
        options = {
            "project": self.project,
            "name": start.run,
            "config": self.config,
            "resume": "allow" if start.is_resumed else "never",
            "embed": False,  # no dashboard below the cell of a notebook
        }
        return TrackioRun(options | dict(self.options))


class TrackioRun:
    """One run of Trackio."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._trackio: Any = import_module("trackio")
        self._run: Any = self._trackio.init(**options)

    def write(self, row: Row) -> None:
        """Log a row at its iteration."""
        media = {
            name: shown(each, self._trackio, self._trackio.Markdown)
            for name, each in row.media.items()
        }
        self._run.log(row.metrics | media | row.clocks, step=row.iteration)

    def sync(self) -> None:
        """Do nothing: Trackio writes in threads of its own."""

    def close(self) -> None:
        """End the run once Trackio has all rows."""
        self._run.finish()
