"""Rows for SwanLab."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ...common import Image, Medium, Text
from ..images import as_bytes
from ..rows import Row, Start
from .tracker import LogsToTracker


@dataclass(frozen=True, eq=False)
class SwanLab(LogsToTracker):
    """Write what is new since the last row for SwanLab, over the iterations.

    The run's id is in the checkpoints, so a resumed run continues the same run of SwanLab. SwanLab
    takes a value only once for a name and a step, which is the iteration here. A thread writes,
    and an error of SwanLab costs a warning, not the run. SwanLab allows a process one run at a
    time.

    Needs `pip install "camshaft[swanlab]"`.

    Args:
        project: The project in SwanLab.
        directory: Where SwanLab's files go; made if there is none.
        when: When to write a row, if there is anything new.
        hparams: Hyper-parameters, also nested.
        options: More arguments of `swanlab.init`: `{"mode": "offline", "workspace": ..., ...}`.

    Raises:
        ModuleNotFoundError: swanlab is not installed.
    """

    directory: str | os.PathLike[str] = "swanlog"
    shown = (Text, Image)
    library = "swanlab"
    extra = "swanlab"

    def writer(self, start: Start) -> SwanLabRun:
        """Begin a run, or continue it."""
        os.makedirs(self.directory, exist_ok=True)
        options = {
            "project": self.project,
            "log_dir": os.fspath(self.directory),
            "config": self.config,
            "id": start.run,
            "resume": "allow",
        }
        return SwanLabRun(options | dict(self.options))


class SwanLabRun:
    """One run of SwanLab."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._swanlab: Any = import_module("swanlab")
        self._run: Any = self._swanlab.init(**options)

    def write(self, row: Row) -> None:
        """Log a row at its iteration."""
        media = {name: self._shown(each) for name, each in row.media.items()}
        others = {name: count for name, count in row.clocks.items() if name != "iteration"}
        self._run.log(row.metrics | media | others, step=row.iteration)

    def sync(self) -> None:
        """Do nothing: SwanLab writes in threads of its own."""

    def close(self) -> None:
        """End the run once SwanLab has all rows."""
        self._run.finish()

    def _shown(self, medium: Medium) -> Any:
        if isinstance(medium, Image):
            pixels = as_bytes(medium).numpy()
            return self._swanlab.Image(pixels, caption=medium.caption or None)
        assert isinstance(medium, Text)
        return self._swanlab.Text(medium.text)
