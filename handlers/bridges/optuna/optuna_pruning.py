"""Optuna: trials that are pruned by any metric."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from importlib import import_module
from typing import Any

from ....engine import Engine, EventEnum, Events, Stage, State, Trigger, ranks
from ...common import Monitored, check_metric


@dataclass(frozen=True, eq=False)
class OptunaPruning:
    """Report a metric to an Optuna trial, and end the run if the trial is to be pruned.

    A pruned run ends like any other that a handler stops: it is completed and closed, with its
    last checkpoint and all rows of its logs. Only then `engine.run` raises `optuna.TrialPruned`,
    which an objective lets pass. The decision is saved with the run.

    A run that continues from a checkpoint reports no step twice.

    Args:
        trial: What the objective was given. On several ranks, rank 0 has the trial and the others
            pass None; all of them end together.
        metric: The metric, such as `"val/loss"`; whether smaller is better is the study's
            `direction`.
        when: When to report. The step that Optuna sees is the epoch for events of epochs, the
            optimizer step for those of steps, and the iteration for others.
        allow_stale: True to report more often than the metric is measured, as in `EarlyStopping`.

    Raises:
        ImportError: Optuna is not installed.
        TypeError: `trial` is no trial.
    """

    trial: Any = field(repr=False)  # of rank 0 alone
    _: KW_ONLY
    metric: str
    when: EventEnum | Trigger = Events.EPOCH_COMPLETED
    allow_stale: bool = False

    def __post_init__(self) -> None:
        check_metric("OptunaPruning", self.metric)
        optuna = _optuna()
        if self.trial is not None and not isinstance(self.trial, optuna.trial.BaseTrial):
            raise TypeError(
                f"OptunaPruning({self.trial!r}): needs the trial that the objective was given"
            )

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Report by the trigger; raise when everything else is closed."""
        if self.trial is None and ranks.rank() == 0:
            raise ValueError("OptunaPruning(None): rank 0 needs the trial, and reports for all")
        engine.on(self.when)(self.report)
        engine.on(Events.CLOSED, stage=Stage.REPORT)(self.prune)

    def report(self, state: State[Any, Any]) -> None:
        """Report the metric, unless that was done before; stop the run if it is to be pruned."""
        pruning = state.recall(self, Pruning)
        value = pruning.new_value(state, self.metric, allow_stale=self.allow_stale)
        if value is None:
            return
        step = self._step(state)
        if ranks.agreed(float(self._is_hopeless(state, step, value))):
            pruning.reason = f"{self.metric}={value:.6g} at step {step}"
            state.stop(f"pruned by Optuna: {pruning.reason}")

    def prune(self, state: State[Any, Any]) -> None:
        """End the trial of a run that was pruned."""
        if (reason := state.recall(self, Pruning).reason) and state.error is None:
            raise _optuna().TrialPruned(reason)

    def _is_hopeless(self, state: State[Any, Any], step: int, value: float) -> bool:
        """Report, and ask the study's pruner; False on a rank without the trial."""
        if self.trial is None:
            return False
        reported = state.recall(self, self._reported, saved=False)
        if step not in reported:
            reported.add(step)
            self.trial.report(value, step)
        return bool(self.trial.should_prune())

    def _reported(self) -> set[int]:
        """The steps that the storage has of this trial already, reported before a kill."""
        if (study := getattr(self.trial, "study", None)) is None:  # a FixedTrial
            return set()
        found = study.get_trials(deepcopy=False)
        own = next(each for each in found if each.number == self.trial.number)
        return set(own.intermediate_values)

    def _step(self, state: State[Any, Any]) -> int:
        clocks = {event.clock for event in Trigger.of(self.when).events} - {Events.COMPLETED.clock}
        by_clock = {"epochs": state.epoch, "steps": state.step}
        return by_clock.get(clocks.pop(), state.iteration) if len(clocks) == 1 else state.iteration


@dataclass
class Pruning(Monitored):
    """Whether the run was pruned, and the value that was reported last."""

    reason: str = ""


def _optuna() -> Any:
    try:
        return import_module("optuna")
    except ImportError as error:
        raise ImportError('OptunaPruning needs Optuna: pip install "camshaft[optuna]"') from error
