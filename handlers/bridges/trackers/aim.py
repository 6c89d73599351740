"""Rows for Aim."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from ...common import Histogram, Image, Medium, Text
from ...files import LARGEST_TEXT, refuse_odd_directory, regular, replacing, safe_name
from ...loggers import Row, Start, WriterOf
from .tracker import Forms, LogsToTracker, formed, numbers_of, pixels_of

FORMS: Forms = {
    Text: lambda client, text: client.Text(text.text),
    Image: lambda client, image: client.Image(pixels_of(image), caption=image.caption),
    Histogram: lambda client, histogram: client.Distribution(
        hist=histogram.counts.tolist(),
        bin_range=(histogram.edges[0].item(), histogram.edges[-1].item()),
    ),
}


@dataclass(frozen=True, eq=False)
class Aim(LogsToTracker):
    """Write what is new since the last row for Aim, over the iterations.

    A file beside Aim's own names the run of Aim, so that a resumed run continues it; Aim has a
    value only once for a name and a step. A thread writes, and an error of Aim costs a warning, not
    the run.

    Needs `pip install "camshaft[aim]"`.

    Args:
        project: The experiment in Aim.
        directory: Where Aim's folder `.aim` is; made if there is none.
        when: When to write a row, if there is anything new.
        hparams: Hyper-parameters, also nested.
        options: More arguments of `aim.Run`: `{"log_system_params": True, ...}`.

    Raises:
        ModuleNotFoundError: aim is not installed.
    """

    _: KW_ONLY
    directory: str | os.PathLike[str] = "."
    shown: ClassVar[tuple[type[Medium], ...]] = tuple(FORMS)
    library = "aim"
    extra = "aim"

    def writer(self, start: Start) -> WriterOf:
        """Begin a run, or continue it."""
        client: Any = import_module("aim")
        os.makedirs(self.directory, exist_ok=True)
        refuse_odd_directory(Path(self.directory, ".aim"))
        repository = client.Repo.from_path(os.fspath(self.directory), init=True)
        known = Path(self.directory, ".aim", safe_name(f"camshaft-{start.run}"))
        known_hash = None
        with suppress(FileNotFoundError), regular(known) as file:
            known_hash = file.read(LARGEST_TEXT).decode()
        arguments = self.arguments(
            run_hash=known_hash,
            repo=repository,
            experiment=self.project,
            force_resume=True,  # a process that was killed leaves its locks
            system_tracking_interval=None,
            capture_terminal_logs=False,  # it would replace the streams that the run writes to
        )
        run = client.Run(**arguments)
        with replacing(known) as new:
            new.write(run.hash.encode())
        run["hparams"] = self.config

        def write(row: Row) -> None:
            for name, value in (numbers_of(row) | formed(row, client, FORMS)).items():
                run.track(value, name=name, step=row.iteration, epoch=row.epoch)

        return WriterOf(write, run.close)
