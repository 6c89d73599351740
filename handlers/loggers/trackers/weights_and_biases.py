"""Rows for Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ...common import Histogram, Image, Text
from ..rows import Row, Start
from .tracker import LogsToTracker, shown


@dataclass(frozen=True, eq=False)
class WandB(LogsToTracker):
    """Write what is new since the last row for Weights & Biases.

    The run's id is in the checkpoints, so a resumed run continues the same run of W&B, offline
    too. A row's step in W&B is its number, which a resumed run counts on from the checkpoint: no
    row is missing, and W&B skips the rows that it has already. The curves are drawn over
    `iteration`, which is in each row with the other clocks. A thread writes, and an error of W&B
    costs a warning, not the run.

    Needs `pip install "camshaft[wandb]"`.

    Args:
        project: The project in W&B.
        directory: Where W&B's files go, in a folder `wandb`; made if there is none.
        when: When to write a row, if there is anything new.
        hparams: Hyper-parameters, also nested.
        options: More arguments of `wandb.init`: `{"mode": "offline", "entity": ..., "tags": ...}`.

    Raises:
        ModuleNotFoundError: wandb is not installed.
    """

    directory: str | os.PathLike[str] = "."
    shown = (Text, Image, Histogram)
    library = "wandb"
    extra = "wandb"

    def writer(self, start: Start) -> WandBRun:
        """Begin a run, or continue it."""
        os.makedirs(self.directory, exist_ok=True)
        options = {
            "project": self.project,
            "dir": os.fspath(self.directory),
            "config": self.config,
            "id": start.run,
            "resume": "allow" if start.is_resumed else None,
            "reinit": "create_new",  # beside other runs of this process
        }
        return WandBRun(options | dict(self.options))


class WandBRun:
    """One run of Weights & Biases."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._wandb: Any = import_module("wandb")
        self._run: Any = self._wandb.init(**options)
        self._run.define_metric("*", step_metric="iteration")
        self._has: int = self._run.step  # online, the rows from before the resume count

    def write(self, row: Row) -> None:
        """Log a row, unless W&B has it already."""
        if row.number >= self._has:
            media = {name: shown(each, self._wandb, str) for name, each in row.media.items()}
            self._run.log(row.metrics | media | row.clocks, step=row.number)

    def sync(self) -> None:
        """Do nothing: W&B writes in a process of its own."""

    def close(self) -> None:
        """End the run once W&B has all rows."""
        self._run.finish()
