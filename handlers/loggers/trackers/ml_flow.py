"""Rows for MLflow."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ....engine import EventEnum, Trigger
from ...common import AT_EACH_ROW, Image, Medium, Text
from ..images import png
from ..logger import LogsRows, flat_hparams, need
from ..rows import Row, Start

TAG = "camshaft.run"
"""The tag by which a run is found again."""


@dataclass(frozen=True, eq=False)
class MLflow(LogsRows):
    """Write what is new since the last row for MLflow, over the iterations.

    A resumed run continues the same run of MLflow, and logs no value twice. The other clocks are
    metrics too; texts and images are artifacts, `<name>/<iteration>.md` and `.png`. A character
    that MLflow does not allow in names becomes `_`. A thread writes to a server; a local file is
    written at once. An error of MLflow costs a warning, not the run. Azure Machine Learning
    understands MLflow, so its tracking URI works too.

    Needs `pip install "camshaft[mlflow]"`.

    Args:
        experiment: The name of the experiment; made if there is none.
        uri: The tracking URI: `"sqlite:///runs/mlflow.db"`, `"http://..."`; by default as the
            environment says.
        when: When to write a row, if there is anything new.
        hparams: Hyper-parameters, also nested.
        name: The run's name in MLflow; MLflow makes one up if it is None.

    Raises:
        ModuleNotFoundError: MLflow is not installed.
    """

    experiment: str
    uri: str | None = None
    when: EventEnum | Trigger = AT_EACH_ROW
    hparams: Mapping[str, Any] = field(default_factory=dict[str, Any])
    name: str | None = None
    background: bool = field(init=False, repr=False)
    shown = (Text, Image)

    def __post_init__(self) -> None:
        need("mlflow", "MLflow", "mlflow")
        local = self.uri is not None and self.uri.startswith(("sqlite:", "file:"))
        object.__setattr__(self, "background", not local)

    def writer(self, start: Start) -> MLflowRun:
        """Begin a run, or find it again."""
        return MLflowRun(self, start)


class MLflowRun:
    """One run of MLflow."""

    def __init__(self, settings: MLflow, start: Start) -> None:
        self._entities: Any = import_module("mlflow.entities")
        tracking: Any = import_module("mlflow.tracking")
        self._client: Any = tracking.MlflowClient(settings.uri)
        experiment = self._client.get_experiment_by_name(settings.experiment)
        number = experiment.experiment_id if experiment else None
        number = number or self._client.create_experiment(settings.experiment)
        found = self._client.search_runs([number], filter_string=f"tags.`{TAG}` = '{start.run}'")
        self._has: Counter[tuple[str, int]] = Counter()
        if found:
            self._run: str = found[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
            for key in found[0].data.metrics:
                history = self._client.get_metric_history(self._run, key)
                self._has.update((key, each.step) for each in history if each.step >= start.first)
        else:
            run = self._client.create_run(number, run_name=settings.name, tags={TAG: start.run})
            self._run = run.info.run_id
            plain = flat_hparams(settings.hparams).items()
            params = [self._entities.Param(key, str(value)) for key, value in plain]
            self._client.log_batch(self._run, params=params)

    def write(self, row: Row) -> None:
        """Log a row, but no value that MLflow has already."""
        now, metrics = int(1000 * time.time()), list[Any]()
        others = {name: count for name, count in row.clocks.items() if name != "iteration"}
        for name, value in (row.metrics | others).items():
            if self._has[_allowed(name), row.iteration]:
                self._has[_allowed(name), row.iteration] -= 1
            else:
                metrics.append(self._entities.Metric(_allowed(name), value, now, row.iteration))
        self._client.log_batch(self._run, metrics=metrics)
        for name, medium in row.media.items():
            self._keep(_allowed(name), row.iteration, medium)

    def sync(self) -> None:
        """Do nothing: MLflow has a row when `write` is over."""

    def close(self) -> None:
        """End the run; it may be continued later."""
        self._client.set_terminated(self._run)

    def _keep(self, name: str, iteration: int, medium: Medium) -> None:
        with TemporaryDirectory() as folder:
            if isinstance(medium, Image):
                path = Path(folder, f"{iteration}.png")
                path.write_bytes(png(medium))
            else:
                assert isinstance(medium, Text)
                path = Path(folder, f"{iteration}.md")
                path.write_text(medium.text, encoding="utf-8")
            self._client.log_artifact(self._run, str(path), name)


def _allowed(name: str) -> str:
    """The nearest name that MLflow allows; one refused name would cost the whole row."""
    parts = [re.sub(r"[^\w.\- :]", "_", part) for part in name.split("/")]
    return "/".join("_" * max(len(part), 1) if part.strip(".") == "" else part for part in parts)
