"""Learning-rate schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ..engine import ranks
from ..engine.engine import Engine
from ..engine.events import EventEnum, Events, Trigger
from ..engine.state import State


@dataclass(frozen=True, eq=False)
class LRSchedule:
    """Step a torch scheduler: after each performed optimizer step, or whenever `when` says.

    The rate that the last step used becomes the metric `"lr"` before the scheduler changes it;
    with several parameter groups it is one metric each, `"lr/0"`, `"lr/1"`, ..., or by the
    groups' `"name"`. A step that was skipped, as after a float16 overflow, moves no schedule.

    Args:
        scheduler: Any torch scheduler. It is saved with the run, as `engine.objects[name]`.
        when: `STEP_COMPLETED` by default; `EPOCH_COMPLETED` for a schedule by epochs, which is
            the default for `ReduceLROnPlateau`.
        monitor: The metric that `ReduceLROnPlateau` looks at, such as `"val/loss"`.
        name: Tells several schedules apart.
        allow_stale: True to let `ReduceLROnPlateau` look more often than is measured, as in
            `EarlyStopping`.

    Raises:
        ValueError: `ReduceLROnPlateau` has no `monitor`, or another scheduler has one.
    """

    scheduler: LRScheduler
    when: EventEnum | Trigger | None = None
    monitor: str | None = None
    name: str = "scheduler"
    allow_stale: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no scheduler, a plateau without a metric, and a metric without one."""
        if not isinstance(self.scheduler, LRScheduler):  # pyright: ignore
            raise TypeError(f"LRSchedule got {self.scheduler!r}; it needs a torch scheduler")
        if self.is_plateau and self.monitor is None:
            raise ValueError(
                "ReduceLROnPlateau needs a metric to look at: LRSchedule(..., monitor='val/loss')"
            )
        if self.monitor is not None and not self.is_plateau:
            raise ValueError(
                f"{type(self.scheduler).__name__} looks at no metric; leave monitor= out, or use "
                "ReduceLROnPlateau"
            )

    @property
    def is_plateau(self) -> bool:
        """True for the one scheduler whose step takes a metric."""
        return isinstance(self.scheduler, ReduceLROnPlateau)

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Step by the trigger; save the scheduler with the run."""
        if self.name in engine.objects:
            raise ValueError(
                f"the engine has an object {self.name!r} already; give this schedule another name: "
                "LRSchedule(..., name='critic_scheduler')"
            )
        engine.objects[self.name] = self.scheduler
        default = Events.EPOCH_COMPLETED if self.is_plateau else Events.STEP_COMPLETED
        engine.on(self.when or default)(self.step)

    def step(self, state: State[Any, Any]) -> None:
        """Keep the rate that was used, then step the scheduler."""
        groups = self.scheduler.optimizer.param_groups
        if len(groups) == 1:
            state.metrics["lr"] = groups[0]["lr"]
        else:
            for number, group in enumerate(groups):
                state.metrics[f"lr/{group.get('name', number)}"] = group["lr"]
        if not isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step()
        elif self.monitor is not None:
            look, metrics = state.recall(self, Look), state.metrics
            if metrics.is_new(self.monitor, look.at, allow_stale=self.allow_stale):
                look.at = metrics.written(self.monitor)
                self.scheduler.step(ranks.agreed(float(state.metrics[self.monitor])))


@dataclass
class Look:
    """Which write of its metric a plateau schedule has looked at: no value counts twice."""

    at: int = 0
