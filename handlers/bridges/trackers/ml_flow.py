"""Rows for MLflow."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from ....engine import Engine, EventEnum, Trigger
from ...common import AT_EACH_ROW, Image, Medium, Text, flat_hparams, need, png
from ...loggers import LogsRows, Row, Start, WriterOf
from .tracker import form_of, import_early, numbers_of

logger: logging.Logger = logging.getLogger("camshaft")

TAG = "camshaft.run"
"""The tag by which a run is found again."""
FILES: dict[type[Medium], tuple[str, Callable[[Any], bytes]]] = {
    Text: (".md", lambda text: text.text.encode()),
    Image: (".png", png),
}
"""By kind of medium: the end of the name of its file, and what is in it."""


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
    _: KW_ONLY
    uri: str | None = None
    when: EventEnum | Trigger = AT_EACH_ROW
    hparams: Mapping[str, Any] = field(default_factory=dict[str, Any])
    name: str | None = None
    background: bool = field(init=False, repr=False)
    shown: ClassVar[tuple[type[Medium], ...]] = tuple(FILES)

    def __post_init__(self) -> None:
        need("mlflow", "MLflow", "mlflow")
        local = self.uri is not None and self.uri.startswith(("sqlite:", "file:"))
        object.__setattr__(self, "background", not local)

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Import the client, and write rows by the trigger."""
        import_early("mlflow.tracking")
        super().attach(engine)

    def writer(self, start: Start) -> WriterOf:
        """Begin a run, or find it again."""
        entities: Any = import_module("mlflow.entities")
        tracking: Any = import_module("mlflow.tracking")
        client = tracking.MlflowClient(self.uri)
        experiment = client.get_experiment_by_name(self.experiment)
        number = experiment.experiment_id if experiment else None
        number = number or client.create_experiment(self.experiment)
        found = client.search_runs([number], filter_string=f"tags.`{TAG}` = '{start.run}'")
        has = Counter[tuple[str, int]]()
        if found:
            run: str = found[0].info.run_id
            client.update_run(run, status="RUNNING")
            for key in found[0].data.metrics:
                history = client.get_metric_history(run, key)
                has.update((key, each.step) for each in history if each.step >= start.first)
        else:
            run = client.create_run(number, run_name=self.name, tags={TAG: start.run}).info.run_id
            plain = flat_hparams(self.hparams).items()
            params = [entities.Param(key, str(value)) for key, value in plain]
            client.log_batch(run, params=params)

        own = dict[str, str]()

        def write(row: Row) -> None:
            now, metrics = int(1000 * time.time()), list[Any]()
            for name in [*row.metrics, *row.media]:
                if (other := own.setdefault(_allowed(name), name)) not in (name, ""):
                    logger.warning(
                        "MLflow: state.metrics has %r and %r, which MLflow gets both as %r, in "
                        "one curve: give them names that differ in letters or digits",
                        *(other, name, _allowed(name)),
                    )
                    own[_allowed(name)] = ""
            for name, value in numbers_of(row).items():
                if has[_allowed(name), row.iteration]:
                    has[_allowed(name), row.iteration] -= 1
                else:
                    metrics.append(entities.Metric(_allowed(name), value, now, row.iteration))
            client.log_batch(run, metrics=metrics)
            for name, medium in row.media.items():
                suffix, content = form_of(medium, FILES)
                with TemporaryDirectory() as folder:
                    path = Path(folder, f"{row.iteration}{suffix}")
                    path.write_bytes(content(medium))
                    client.log_artifact(run, str(path), _allowed(name))

        return WriterOf(write, lambda: client.set_terminated(run))


def _allowed(name: str) -> str:
    """The nearest name that MLflow allows; one refused name would cost the whole row."""
    parts = [re.sub(r"[^\w.\- :]", "_", part) for part in name.split("/")]
    return "/".join("_" * max(len(part), 1) if part.strip(".") == "" else part for part in parts)
