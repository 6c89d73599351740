"""Rows for ClearML."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from importlib import import_module
from typing import Any, ClassVar

from ...common import Histogram, Image, Medium
from ...loggers import Row, Start, WriterOf
from .tracker import LogsToTracker, numbers_of, pixels_of


@dataclass(frozen=True, eq=False)
class ClearML(LogsToTracker):
    """Write what is new since the last row for ClearML, over the iterations.

    If the script has a task of its own, by `Task.init`, the rows go there, and the task stays open.
    Else the logger makes one, which a resumed run finds again by its tag. Offline, each process
    writes a session of its own, to be imported by `Task.import_offline_session`. A thread writes,
    and an error of ClearML costs a warning, not the run.

    Needs `pip install "camshaft[clearml]"`.

    Args:
        project: The project in ClearML.
        name: The name of the task.
        when: When to write a row, if there is anything new.
        hparams: Hyper-parameters, also nested.
        options: More arguments of `clearml.Task.init`: `{"output_uri": ..., "task_type": ...}`.
        offline: True to write to a folder of this machine instead of a server.

    Raises:
        ModuleNotFoundError: clearml is not installed.
    """

    _: KW_ONLY
    name: str = "camshaft"
    offline: bool = field(default=False, kw_only=True)
    shown: ClassVar[tuple[type[Medium], ...]] = (Image, Histogram)
    library = "clearml"
    extra = "clearml"

    def writer(self, start: Start) -> WriterOf:
        """Begin a task, find it again, or use the script's task."""
        client: Any = import_module("clearml")
        task = client.Task.current_task()
        if is_own := task is None:
            task = self._begin(client.Task, start)
        task.set_parameters_as_dict(self.config)
        log = task.get_logger()

        def write(row: Row) -> None:
            for name, value in numbers_of(row).items():
                log.report_scalar(*_place(name), value, row.iteration)
            for name, medium in row.media.items():
                _show(log, name, row.iteration, medium)

        def close() -> None:
            task.flush()
            if is_own:
                task.close()

        return WriterOf(write, close)

    def _begin(self, kind: Any, start: Start) -> Any:
        tag, found = f"camshaft:{start.run}", list[Any]()
        kind.set_random_seed(None)  # `init` would seed Python, NumPy and torch in mid-run
        # `init` would fork the training process, beside the threads of torch and its own. Its
        # child holds what another thread has open then: one of its own commands never ended.
        kind._report_subprocess_enabled = False
        if self.offline:
            kind.set_offline(offline_mode=True)
        elif start.is_resumed:
            found = kind.get_tasks(project_name=self.project, tags=[tag])
        arguments = self.arguments(
            project_name=self.project,
            task_name=self.name,
            tags=[tag],
            reuse_last_task_id=found[0].id if found else False,
            continue_last_task=0 if found else False,  # 0: iterations stay as they are
            auto_connect_frameworks=False,  # it would record other loggers' output twice
            auto_connect_arg_parser=False,
            auto_resource_monitoring=False,
        )
        return kind.init(**arguments)


def _show(log: Any, name: str, iteration: int, medium: Medium) -> None:
    title, series = _place(name)
    if isinstance(medium, Image):
        log.report_image(title, series, iteration=iteration, image=pixels_of(medium))
    elif isinstance(medium, Histogram):
        labels = [f"{edge:.4g}" for edge in medium.edges[:-1].tolist()]
        counts = medium.counts.tolist()
        log.report_histogram(title, series, counts, iteration=iteration, xlabels=labels)


def _place(name: str) -> tuple[str, str]:
    """The plot and the series of a metric: `val/loss` is the series `loss` of the plot `val`."""
    title, _, series = name.rpartition("/")
    return title or series, series
