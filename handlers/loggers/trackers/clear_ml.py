"""Rows for ClearML."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ...common import Histogram, Image, Medium
from ..images import as_bytes
from ..rows import Row, Start
from .tracker import LogsToTracker


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

    name: str = "camshaft"
    offline: bool = field(default=False, kw_only=True)
    shown = (Image, Histogram)
    library = "clearml"
    extra = "clearml"

    def writer(self, start: Start) -> ClearMLTask:
        """Begin a task, find it again, or take that of the script."""
        kind: Any = import_module("clearml").Task
        task = kind.current_task()
        if is_own := task is None:
            task = self._begin(kind, start)
        task.set_parameters_as_dict(self.config)
        return ClearMLTask(task, is_own=is_own)

    def _begin(self, kind: Any, start: Start) -> Any:
        tag, found = f"camshaft:{start.run}", list[Any]()
        if self.offline:
            kind.set_offline(offline_mode=True)
        elif start.is_resumed:
            found = kind.get_tasks(project_name=self.project, tags=[tag])
        options = {
            "project_name": self.project,
            "task_name": self.name,
            "tags": [tag],
            "reuse_last_task_id": found[0].id if found else False,
            "continue_last_task": 0 if found else False,  # 0: iterations stay as they are
            "auto_connect_frameworks": False,  # what other loggers write would be there twice
            "auto_connect_arg_parser": False,
            "auto_resource_monitoring": False,
        }
        return kind.init(**(options | dict(self.options)))


class ClearMLTask:
    """One task of ClearML."""

    def __init__(self, task: Any, *, is_own: bool) -> None:
        self._task, self._is_own = task, is_own
        self._logger: Any = task.get_logger()

    def write(self, row: Row) -> None:
        """Report a row at its iteration: `val/loss` is the series `loss` of the plot `val`."""
        clocks = {name: count for name, count in row.clocks.items() if name != "iteration"}
        for name, value in (row.metrics | clocks).items():
            title, series = _place(name)
            self._logger.report_scalar(title, series, value, row.iteration)
        for name, medium in row.media.items():
            self._show(*_place(name), row.iteration, medium)

    def sync(self) -> None:
        """Do nothing: ClearML writes in threads of its own."""

    def close(self) -> None:
        """End the task once ClearML has all rows, unless it is the script's."""
        self._task.flush()
        if self._is_own:
            self._task.close()

    def _show(self, title: str, series: str, iteration: int, medium: Medium) -> None:
        if isinstance(medium, Image):
            pixels = as_bytes(medium).numpy()
            self._logger.report_image(title, series, iteration=iteration, image=pixels)
        elif isinstance(medium, Histogram):
            self._logger.report_histogram(
                *(title, series, medium.counts.tolist()),
                iteration=iteration,
                xlabels=[f"{edge:.4g}" for edge in medium.edges[:-1].tolist()],
            )


def _place(name: str) -> tuple[str, str]:
    """The plot and the series of a metric."""
    title, _, series = name.rpartition("/")
    return title or series, series
