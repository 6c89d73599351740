"""Rows for Weights & Biases."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import Any, ClassVar

from ...common import Medium
from ...loggers import Row, Start, WriterOf
from .tracker import USUAL, LogsToTracker, formed


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

    _: KW_ONLY
    directory: str | os.PathLike[str] = "."
    shown: ClassVar[tuple[type[Medium], ...]] = tuple(USUAL)
    library = "wandb"
    extra = "wandb"

    def writer(self, start: Start) -> WriterOf:
        """Begin a run, or continue it."""
        client: Any = import_module("wandb")
        os.makedirs(self.directory, exist_ok=True)
        arguments = self.arguments(
            project=self.project,
            dir=os.fspath(self.directory),
            config=self.config,
            id=start.run,
            resume="allow" if start.is_resumed else None,
            reinit="create_new",  # beside other runs of this process
        )
        run = client.init(**arguments)
        run.define_metric("*", step_metric="iteration")
        has: int = run.step  # online, the rows from before the resume count

        def write(row: Row) -> None:
            if row.number >= has:
                run.log(row.metrics | formed(row, client, USUAL) | row.clocks, step=row.number)

        return WriterOf(write, run.finish)
