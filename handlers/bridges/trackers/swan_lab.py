"""Rows for SwanLab."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import Any, ClassVar

from ...common import Image, Medium, Text
from ...loggers import Row, Start, WriterOf
from .tracker import USUAL, Forms, LogsToTracker, formed, numbers_of

FORMS: Forms = {
    Text: lambda client, text: client.Text(text.text),
    Image: USUAL[Image],
}


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

    _: KW_ONLY
    directory: str | os.PathLike[str] = "swanlog"
    shown: ClassVar[tuple[type[Medium], ...]] = tuple(FORMS)
    library = "swanlab"
    extra = "swanlab"

    def writer(self, start: Start) -> WriterOf:
        """Begin a run, or continue it."""
        client: Any = import_module("swanlab")
        os.makedirs(self.directory, exist_ok=True)
        arguments = self.arguments(
            project=self.project,
            log_dir=os.fspath(self.directory),
            config=self.config,
            id=start.run,
            name=start.run,  # it would draw a name and a colour from Python's generator
            color=f"#{start.run[:6]}",
            resume="allow",
        )
        run = client.init(**arguments)

        def write(row: Row) -> None:
            run.log(formed(row, client, FORMS) | numbers_of(row), step=row.iteration)

        return WriterOf(write, run.finish)
