"""Rows for Comet."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import Any, ClassVar

from ...common import Image, Medium, Text
from ...loggers import Row, Start, WriterOf
from .tracker import LogsToTracker, numbers_of, pixels_of


@dataclass(frozen=True, eq=False)
class Comet(LogsToTracker):
    """Write what is new since the last row for Comet, over the iterations.

    The key of the experiment is in the checkpoints, so a resumed run continues the same experiment
    of Comet, which keeps rows that come twice: they are the same. A thread writes, and an error of
    Comet costs a warning, not the run.

    Needs `pip install "camshaft[comet]"`.

    Args:
        project: The project in Comet.
        directory: Where the archives of an offline run go; made if there is none.
        when: When to write a row, if there is anything new.
        hparams: Hyper-parameters, also nested.
        options: More arguments of `comet_ml.start`: `{"online": False, "workspace": ...}`.

    Raises:
        ModuleNotFoundError: comet-ml is not installed.
    """

    _: KW_ONLY
    directory: str | os.PathLike[str] = "."
    shown: ClassVar[tuple[type[Medium], ...]] = (Text, Image)
    library = "comet_ml"
    extra = "comet"

    def writer(self, start: Start) -> WriterOf:
        """Begin an experiment, or continue it."""
        client: Any = import_module("comet_ml")
        os.makedirs(self.directory, exist_ok=True)
        config = client.ExperimentConfig(
            offline_directory=os.fspath(self.directory),
            auto_metric_logging=False,  # it would record other loggers' output twice
            auto_param_logging=False,
            auto_output_logging=False,  # it would replace the streams while the run writes to them
            display_summary_level=0,
        )
        arguments = self.arguments(
            project_name=self.project,
            experiment_key=start.run,
            mode="get_or_create" if start.is_resumed else "create",
            experiment_config=config,
        )
        experiment = client.start(**arguments)
        experiment.log_parameters(self.config, nested_support=True)

        def write(row: Row) -> None:
            step = row.iteration
            experiment.log_metrics(numbers_of(row), step=step, epoch=row.epoch)
            for name, medium in row.media.items():
                if isinstance(medium, Image):
                    experiment.log_image(pixels_of(medium), name, step=step)
                elif isinstance(medium, Text):
                    experiment.log_text(medium.text, step=step, metadata={"name": name})

        return WriterOf(write, experiment.end)
