"""Ray: metrics and checkpoints of a run, where users of Ray Train and Ray Tune look for them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from ....engine import Engine, EventEnum, Events, Stage, State, Trigger, ranks
from ...checkpoint import Checkpoint, checkpoints
from ...cluster.local import LocalCheckpoint
from ...common import scalars
from ...files import link_folder

logger: logging.Logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class RayReport:
    """Report metrics, each time with a checkpoint, to the Ray Train or Ray Tune around the run.

    Add it after the `Checkpoint`, on every rank. Each report waits until the checkpoint of the same
    moment is on the disk. They are then `result.metrics`, `result.checkpoint` and
    `result.best_checkpoints`. In a worker of Ray Train the checkpoint takes no further space where
    Ray's `storage_path` is on the same file system: its files get a second name there. Elsewhere
    Ray copies them.

    A run that was killed continues as the same run by `resume=True`, where the directory of the
    `Checkpoint` is still there: below Ray's `storage_path`, for example. A checkpoint that was
    saved and not reported is reported then. Elsewhere, and in trials of Ray Tune, resume from what
    Ray gives:

    ```python
    given = ray.train.get_checkpoint()  # or ray.tune.get_checkpoint()
    checkpoint = Checkpoint("checkpoints", resume=given.to_directory() if given else True)
    engine.add(checkpoint, RayReport(checkpoint))
    ```

    When Ray Tune ends the trial, the run is interrupted: it is closed, and not completed.

    Args:
        checkpoint: The handler that saves; None to report metrics only. Ray Train keeps only
            metrics that come with a checkpoint.
        when: When to report.
        metrics: The names of those to report; by default all that are numbers. The epoch, the
            iteration and the step are reported as well.
        preemption: When to ask Ray Train whether a node is about to be taken away, such as
            `Events.ITERATION_COMPLETED(every=100)`; then the run saves, reports and goes on. All
            workers wait for one another each time, some milliseconds; None never asks.

    Raises:
        ImportError: Ray is not installed, or too old to tell of preemption.
        TypeError: `checkpoint` is no `Checkpoint`.
        ValueError: Its directory is on a disk of each host.
    """

    writes_files: ClassVar[bool] = True
    checkpoint: Checkpoint | None = None
    _: KW_ONLY
    when: EventEnum | Trigger = Events.EPOCH_COMPLETED(last=True)
    metrics: Sequence[str] | None = None
    preemption: EventEnum | Trigger | None = None

    def __post_init__(self) -> None:
        if self.checkpoint is not None and not isinstance(self.checkpoint, Checkpoint):
            raise TypeError(
                f"RayReport({self.checkpoint!r}): needs the Checkpoint handler of the engine"
            )
        if isinstance(self.checkpoint, LocalCheckpoint):
            raise ValueError(
                "RayReport needs a Checkpoint whose directory all workers share: of a "
                "LocalCheckpoint, each host has the files of its own ranks alone"
            )
        if isinstance(self.metrics, str):
            raise TypeError(f"RayReport(metrics={self.metrics!r}): needs a list of names")
        train, _ = libraries()
        if self.preemption is not None and not hasattr(train, "get_preemption_info"):
            raise ImportError(
                "RayReport(preemption=...): needs a Ray with ray.train.get_preemption_info; update "
                "ray, or leave preemption out"
            )

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Ask for a checkpoint by the trigger, and report when it is written."""
        engine.on(Events.LOADING, stage=Stage.MEASURE)(self.check)
        if self.checkpoint is not None:
            engine.name_of(self.checkpoint)
            engine.on(Events.LOADING, stage=Stage.REPORT)(self.catch_up)
            engine.on(Events.SAVING, stage=Stage.REPORT)(self.report)
        engine.on(self.when, stage=Stage.REPORT)(self.ask)
        if self.preemption is not None:
            engine.on(self.preemption, stage=Stage.REPORT)(self.look_out)
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.end)

    def check(self, state: State[Any, Any]) -> None:
        """Check that there is a Ray to report to."""
        session()

    def catch_up(self, state: State[Any, Any]) -> None:
        """Report the checkpoint of a run that was killed after it was saved and before the report.

        Rank 0 asks Ray, and decides for all.
        """
        report = state.recall(self, Report)
        if report.metrics is None:
            return
        path = self._saved(state)
        if ranks.agreed(float(path is None or session().has(state.iteration))):
            report.metrics = None
        else:
            self._send(state, report, path)

    def ask(self, state: State[Any, Any], partial: bool = False) -> None:
        """Keep the metrics of this moment for the report; ask for the checkpoint."""
        numbers = scalars(state.metrics)
        if self.metrics is not None:
            names = [n for n in self.metrics if n in numbers or not partial]
            numbers = {name: numbers[name] for name in names}
        clocks = {"epoch": state.epoch, "iteration": state.iteration, "step": state.step}
        report = state.recall(self, Report)
        report.metrics = {**numbers, **clocks}
        if self.checkpoint is None:
            self._send(state, report, None)
        else:
            state.save("Ray", by=self.checkpoint)

    def look_out(self, state: State[Any, Any]) -> None:
        """Save and report once if Ray is about to take a node away; each rank gets one answer."""
        notices = state.recall(self, Heard, saved=False).notices
        if (notice := session().preemption()) and notice not in notices:
            notices.append(notice)
            logger.warning("Ray is about to take away %s; the run saves now, and goes on", notice)
            self.ask(state, partial=True)  # metrics of the epoch may not exist yet

    def report(self, state: State[Any, Any]) -> None:
        """Report with the checkpoint that was just saved, or without one if that has failed."""
        report = state.recall(self, Report)
        if self.checkpoint is not None and report.metrics is not None:
            self.checkpoint.wait(state)
            self._send(state, report, self._saved(state))

    def end(self, state: State[Any, Any]) -> None:
        """End the thread of a trial that Tune has ended."""
        heard = state.recall(self, Heard, saved=False)
        if heard.exit is not None and state.error is None:
            raise heard.exit

    def _send(self, state: State[Any, Any], report: Report, path: Path | None) -> None:
        metrics, report.metrics = report.metrics, None
        try:
            session().report(metrics or {}, path)
        except SystemExit as error:  # this is how Tune ends a trial
            state.recall(self, Heard, saved=False).exit = error
            state.stop("Ray Tune ended the trial", resumable=True)

    def _saved(self, state: State[Any, Any]) -> Path | None:
        """The checkpoint of this moment; rank 0 has it, and other ranks may not see its folder."""
        if self.checkpoint is None or ranks.rank() != 0:
            return None
        found = checkpoints(self.checkpoint.directory)
        newest = found[-1] if found else None
        is_of_now = newest is not None and newest.manifest.iteration == state.iteration
        return newest.path if newest is not None and is_of_now else None


@dataclass
class Report:
    """What is to be reported when the checkpoint is there; it is also saved in that checkpoint."""

    metrics: dict[str, float] | None = None


@dataclass
class Heard:
    """What Ray has announced to this process."""

    exit: SystemExit | None = None
    """Ends the thread of a trial when the run is closed."""
    notices: list[str] = field(default_factory=list[str])
    """Nodes that will soon be removed."""


class TrainWorker:
    """A worker of Ray Train, one of several ranks."""

    def __init__(self) -> None:
        self.ray: ModuleType = import_module("ray.train")
        self.storage: Any = self.ray.get_context().get_storage()

    def report(self, metrics: Mapping[str, float], path: Path | None) -> None:
        """Report on all ranks, with the checkpoint that rank 0 has, if there is one.

        The storage of Ray gets the files of the checkpoint under their own name.
        """
        given = None if path is None else self.ray.Checkpoint.from_directory(path)
        name = None if path is None else f"checkpoint_{path.name}"
        self.ray.report(
            dict(metrics),
            checkpoint=given,
            checkpoint_dir_name=name,
            checkpoint_upload_fn=self._store,
        )

    def has(self, iteration: int) -> bool:
        """True if a checkpoint of this iteration or a later one was reported; every rank asks."""
        known = self.ray.get_all_reported_checkpoints()
        return any(each.metrics.get("iteration", -1) >= iteration for each in known)

    def preemption(self) -> str:
        """The nodes that are about to be taken away, and when; empty if none. Every rank asks."""
        info = self.ray.get_preemption_info()
        if info is None:
            return ""
        nodes = ", ".join(info.preempted_node_ids)
        return f"node {nodes}" + (f" at {info.deadline_ms / 1000:.0f}" if info.deadline_ms else "")

    def _store(self, checkpoint: Any, name: str) -> Any:
        """Hard-link the files of a checkpoint into Ray's storage; copy if linking fails.

        Our files never change, so both names may be dropped independently of each other.
        """
        place = Path(self.storage.build_checkpoint_path_from_name(name))
        if self.storage.storage_filesystem.type_name == "local":
            self.storage._check_validation_file()
            if link_folder(Path(checkpoint.path), place):
                return self.ray.Checkpoint(str(place), self.storage.storage_filesystem)
        return self.storage.persist_current_checkpoint(checkpoint, name)


class TuneTrial:
    """A trial of Ray Tune, in one process."""

    def __init__(self) -> None:
        self.ray: ModuleType = import_module("ray.tune")

    def report(self, metrics: Mapping[str, float], path: Path | None) -> None:
        """Report; Tune copies the checkpoint to its storage."""
        given = None if path is None else self.ray.Checkpoint.from_directory(path)
        self.ray.report(dict(metrics), checkpoint=given)

    def has(self, iteration: int) -> bool:
        """A trial that Tune continues was given its last checkpoint."""
        return self.ray.get_checkpoint() is not None

    def preemption(self) -> str:
        """Empty: Tune moves trials by itself."""
        return ""


def session() -> TrainWorker | TuneTrial:
    """The part of Ray that started this process."""
    train, tune = libraries()
    if tune.get_context().get_trial_id() is not None:
        return TuneTrial()
    try:
        train.get_context()
    except RuntimeError as error:
        raise RuntimeError(
            "RayReport: this run is in no worker of Ray Train and in no trial of Ray Tune; start "
            "it by ray.train.torch.TorchTrainer(function).fit() or ray.tune.Tuner(function).fit(), "
            "or leave RayReport out"
        ) from error
    return TrainWorker()


def libraries() -> tuple[Any, Any]:
    """Ray Train and Ray Tune."""
    try:
        return import_module("ray.train"), import_module("ray.tune")
    except ImportError as error:
        raise ImportError(
            'RayReport needs Ray Train and Ray Tune: pip install "camshaft[ray]"'
        ) from error
