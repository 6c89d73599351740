"""What of Ray has started this process: a worker of Ray Train, or a trial of Ray Tune."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from ..files import link_folder


class Session(Protocol):
    """Takes reports, each with the path of a checkpoint or None."""

    def report(self, metrics: Mapping[str, float], path: Path | None) -> None:
        """Report on all ranks; a checkpoint is that of rank 0."""

    def has(self, iteration: int) -> bool:
        """True if a checkpoint of this iteration, or a later one, was reported."""
        ...

    def preemption(self) -> str:
        """The nodes that are about to be taken away, and when; empty if none."""
        ...


class TrainWorker:
    """A worker of Ray Train, one of several ranks."""

    def __init__(self) -> None:
        self.ray = import_module("ray.train")
        self.storage = self.ray.get_context().get_storage()

    def report(self, metrics: Mapping[str, float], path: Path | None) -> None:
        """Report; the storage of Ray gets the files of a checkpoint under their own name.

        Raises:
            ValueError: Ray's storage is on another machine, or cannot be written to.
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
        """Ask the controller, which every rank does."""
        known = self.ray.get_all_reported_checkpoints()
        return any(each.metrics.get("iteration", -1) >= iteration for each in known)

    def preemption(self) -> str:
        """Ask for what rank 0 was told, on every rank."""
        info = self.ray.get_preemption_info()
        if info is None:
            return ""
        nodes = ", ".join(info.preempted_node_ids)
        return f"node {nodes}" + (f" at {info.deadline_ms / 1000:.0f}" if info.deadline_ms else "")

    def _store(self, checkpoint: Any, name: str) -> Any:
        """Give the files of a checkpoint a second name where Ray keeps them; copy if need be.

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
        self.ray = import_module("ray.tune")

    def report(self, metrics: Mapping[str, float], path: Path | None) -> None:
        """Report; Tune copies the checkpoint to its storage.

        Raises:
            SystemExit: Tune ends the trial.
        """
        given = None if path is None else self.ray.Checkpoint.from_directory(path)
        self.ray.report(dict(metrics), checkpoint=given)

    def has(self, iteration: int) -> bool:
        """A trial that Tune continues was given its last checkpoint."""
        return self.ray.get_checkpoint() is not None

    def preemption(self) -> str:
        """Tune moves trials by itself."""
        return ""


def session() -> Session:
    """What has started this process.

    Raises:
        ImportError: Ray is not installed.
        RuntimeError: It was not Ray.
    """
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
    """Ray Train and Ray Tune.

    Raises:
        ImportError: One of them is not installed.
    """
    try:
        return import_module("ray.train"), import_module("ray.tune")
    except ImportError as error:
        raise ImportError(
            'RayReport needs Ray Train and Ray Tune: pip install "camshaft[ray]"'
        ) from error
