"""Rows for Trackio."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

from ...common import Medium, Text
from ...loggers import Row, Start, WriterOf
from .tracker import USUAL, Forms, LogsToTracker, formed

FORMS: Forms = {**USUAL, Text: lambda client, text: client.Markdown(text.text)}


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

    shown: ClassVar[tuple[type[Medium], ...]] = tuple(FORMS)
    library = "trackio"
    extra = "trackio"

    def writer(self, start: Start) -> WriterOf:
        """Begin a run, or continue it."""
        client: Any = import_module("trackio")
        arguments = self.arguments(
            project=self.project,
            name=start.run,
            config=self.config,
            resume="allow" if start.is_resumed else "never",
            embed=False,  # no dashboard below the cell of a notebook
        )
        run = client.init(**arguments)

        def write(row: Row) -> None:
            run.log(row.metrics | formed(row, client, FORMS) | row.clocks, step=row.iteration)

        return WriterOf(write, run.finish)
