"""Ray Tune: trials that report their metrics and their checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger
from ..checkpoint import Checkpoint, checkpoints
from ..common import scalars


@dataclass(frozen=True, eq=False)
class RayTune:
    """Report metrics to the Ray Tune trial in which the run happens, with a checkpoint each time.

    Add it after the `Checkpoint`. Each report waits until the checkpoint of the same moment is on
    the disk, and Tune copies it to its storage. A trial that was paused, killed or moved continues
    from there as the same run, if the `Checkpoint` resumes from what Tune gives:

    ```python
    given = ray.tune.get_checkpoint()
    checkpoint = Checkpoint("checkpoints", resume=given.to_directory() if given else True)
    engine.add(checkpoint, RayTune(checkpoint))
    ```

    When Tune ends the trial, the run is interrupted: it is closed, and not completed.

    Args:
        checkpoint: The handler that saves; None to report metrics only.
        when: When to report.
        metrics: The names of those to report; by default all that are numbers. The epoch, the
            iteration and the step are reported as well.

    Raises:
        ImportError: Ray Tune is not installed.
        TypeError: `checkpoint` is no `Checkpoint`.
    """

    checkpoint: Checkpoint | None = None
    when: EventEnum | Trigger = Events.EPOCH_COMPLETED(last=True)
    metrics: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.checkpoint is not None and not isinstance(self.checkpoint, Checkpoint):
            raise TypeError(
                f"RayTune({self.checkpoint!r}): needs the Checkpoint handler of the engine"
            )
        if isinstance(self.metrics, str):
            raise TypeError(f"RayTune(metrics={self.metrics!r}): needs a list of names")
        _tune()

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Ask for a checkpoint by the trigger, and report when it is written.

        Raises:
            ValueError: The `Checkpoint` is not attached yet.
        """
        if self.checkpoint is not None:
            engine.name_of(self.checkpoint)
            engine.on(Events.SAVING, stage=Stage.REPORT)(self.report)
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.check)
        engine.on(self.when, stage=Stage.REPORT)(self.ask)
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.end)

    def check(self, state: State[Any, Any]) -> None:
        """Check that there is a trial to report to.

        Raises:
            RuntimeError: The run is not in a trial of Ray Tune.
        """
        if _tune().get_context().get_trial_id() is None:
            raise RuntimeError(
                "RayTune: this run is in no trial of Ray Tune; start it by ray.tune.Tuner(function)"
                ".fit(), or leave RayTune out"
            )

    def ask(self, state: State[Any, Any]) -> None:
        """Keep the metrics of this moment for the report; ask for the checkpoint."""
        numbers = scalars(state.metrics)
        if self.metrics is not None:
            numbers = {name: numbers[name] for name in self.metrics}
        clocks = {"epoch": state.epoch, "iteration": state.iteration, "step": state.step}
        report = state.recall(self, Report, saved=False)
        report.metrics = {**numbers, **clocks}
        if self.checkpoint is None:
            self._send(state, report)
        else:
            state.save("Ray Tune", by=self.checkpoint)

    def report(self, state: State[Any, Any]) -> None:
        """Report with the checkpoint that was just saved."""
        report = state.recall(self, Report, saved=False)
        if self.checkpoint is not None and report.metrics is not None:
            self.checkpoint.wait(state)
            newest = checkpoints(self.checkpoint.directory)[-1].path
            self._send(state, report, _tune().Checkpoint.from_directory(newest))

    def end(self, state: State[Any, Any]) -> None:
        """End the thread of a trial that Tune has ended.

        Raises:
            SystemExit: Tune has ended the trial.
        """
        report = state.recall(self, Report, saved=False)
        if report.exit is not None and state.error is None:
            raise report.exit

    def _send(self, state: State[Any, Any], report: Report, checkpoint: Any = None) -> None:
        metrics, report.metrics = report.metrics, None
        try:
            _tune().report(metrics, checkpoint=checkpoint)
        except SystemExit as error:  # this is how Tune ends a trial
            report.exit = error
            state.stop("Ray Tune ended the trial", resumable=True)


@dataclass
class Report:
    """What is to be reported when the checkpoint is there."""

    metrics: dict[str, float] | None = None
    exit: SystemExit | None = None
    """What ends the trial when the run is closed."""


def _tune() -> Any:
    try:
        return import_module("ray.tune")
    except ImportError as error:
        raise ImportError('RayTune needs Ray Tune: pip install "camshaft[ray]"') from error
