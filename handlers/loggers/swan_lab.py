"""Rows for SwanLab."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar

from ...engine.engine import Engine
from ...engine.events import EventEnum, Trigger
from ..common.media import Image, Medium, Text
from .logger import WHEN, attach
from .optional import need
from .png import as_bytes
from .rows import Row
from .writer import Start


@dataclass(frozen=True, eq=False)
class SwanLab:
    """Write what is new since the last row for SwanLab, over the iterations.

    Its id of the run is in the checkpoints, so a run that is resumed goes on as the same run
    there. SwanLab takes no value twice for a name and a step, which is the iteration here. A
    thread writes, and whatever goes wrong there costs a warning, not the run. A process has one
    run there at a time.

    Needs `pip install "camshaft[swanlab]"`.

    Args:
        project: The project there.
        directory: Where its files go; made if there is none.
        when: When to write a row, if there is anything new.
        hparams: Hyper-parameters, also nested.
        options: What else `swanlab.init` takes: `{"mode": "offline", "workspace": ..., ...}`.

    Raises:
        ModuleNotFoundError: swanlab is not installed.
    """

    project: str
    directory: str | os.PathLike[str] = "swanlog"
    when: EventEnum | Trigger = WHEN
    hparams: Mapping[str, Any] = field(default_factory=dict[str, Any])
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    background: bool = field(default=True, init=False, repr=False)
    shown: tuple[type[Medium], ...] = field(default=(Text, Image), init=False, repr=False)
    rank: ClassVar[int] = 0

    def __post_init__(self) -> None:
        """See whether swanlab is there."""
        need("swanlab", "SwanLab", "swanlab")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Write rows by the trigger."""
        attach(self, engine)

    def open(self, start: Start) -> SwanLabRun:
        """Begin a run there, or go on with it."""
        os.makedirs(self.directory, exist_ok=True)
        options = {
            "project": self.project,
            "log_dir": os.fspath(self.directory),
            "config": dict(self.hparams),
            "id": start.run,
            "resume": "allow",
        }
        return SwanLabRun(options | dict(self.options))


class SwanLabRun:
    """One run of SwanLab's."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Begin it with what `swanlab.init` takes."""
        self._swanlab: Any = import_module("swanlab")
        self._run: Any = self._swanlab.init(**options)

    def write(self, row: Row) -> None:
        """Log a row at its iteration."""
        media = {name: self._shown(each) for name, each in row.media.items()}
        others = {name: count for name, count in row.clocks.items() if name != "iteration"}
        self._run.log(row.metrics | media | others, step=row.iteration)

    def sync(self) -> None:
        """Nothing: threads of its own write."""

    def close(self) -> None:
        """End the run there, with all that was logged."""
        self._run.finish()

    def _shown(self, medium: Medium) -> Any:
        if isinstance(medium, Image):
            pixels = as_bytes(medium).numpy()
            return self._swanlab.Image(pixels, caption=medium.caption or None)
        assert isinstance(medium, Text)
        return self._swanlab.Text(medium.text)
