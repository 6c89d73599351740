"""Learning-rate schedules, and schedules of whatever else an optimizer is set to."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from dataclasses import field as field_of
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger
from ..common import Monitored, advance, read
from .build import Given, Make, as_scheduler, build, check, look_ahead, optimizer_of, reset
from .by_updates import ByUpdates
from .horizon import Horizon
from .scheduled import Scheduled

logger = logging.getLogger("camshaft")


class ScheduleEvents(EventEnum):
    """What happens to a schedule of pieces."""

    PIECE_COMPLETED = "piece_completed"
    """A piece has ended, such as the warm-up; the next one begins with the step that follows."""


@dataclass(frozen=True, eq=False)
class LRSchedule:
    """Step a schedule: after each performed optimizer step, or whenever `when` says.

    The rate that the last step used becomes the metric `"lr"` before the schedule changes it;
    with several parameter groups it is one metric each, `"lr/0"`, `"lr/1"`, ..., or by the
    groups' `"name"`. A step that was skipped, as after a float16 overflow, moves no schedule.

    A schedule that depends on the length of the run is built when the run starts: a schedule of
    pieces, such as `warmup(500).then(cosine(final=0.1))`, or a function of the optimizer and the
    `Horizon` of the run, such as
    `lambda optimizer, horizon: OneCycleLR(optimizer, 0.1, total_steps=horizon.steps)`.

    Args:
        scheduler: Any torch scheduler; a scheduler like timm's, whose `step_update` is called after
            each update and whose `step` is called after each epoch; a schedule of pieces, or one
            for each group; or a function that makes one of these. It is saved with the run, as
            `engine.objects[name]`.
        when: When to step: `STEP_COMPLETED` by default, with a `monitor` `EPOCH_COMPLETED`.
        monitor: The metric that `ReduceLROnPlateau` looks at, such as `"val/loss"`.
        name: The schedule's name in `engine.objects`; `"scheduler"` by default, or for another
            field `"<field>_scheduler"`. With any other name the metric is `"lr/<name>"`.
        field: What pieces move: `"lr"`, `"weight_decay"`, `"momentum"`, `"betas.0"`.
        optimizer: The optimizer of a schedule that is built when the run starts;
            `engine.objects["optimizer"]` by default.
        allow_stale: True to let `ReduceLROnPlateau` look more often than the metric is measured, as
            in `EarlyStopping`.

    Raises:
        TypeError: `scheduler` cannot be stepped.
        ValueError: `ReduceLROnPlateau` has no `monitor`, or another scheduler has one.
    """

    scheduler: Given | Make
    when: EventEnum | Trigger | None = None
    monitor: str | None = None
    name: str = ""
    field: str = "lr"
    optimizer: Optimizer | None = None
    allow_stale: bool = False
    metric: str = field_of(init=False)
    """The metric of the rates."""
    _ready: LRScheduler | None = field_of(init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the scheduler, and complete the names."""
        usual = "scheduler" if self.field == "lr" else f"{self.field}_scheduler"
        has_own_name = self.name not in ("", usual)
        object.__setattr__(
            self, "metric", f"{self.field}/{self.name}" if has_own_name else self.field
        )
        object.__setattr__(self, "name", self.name or usual)
        object.__setattr__(self, "_ready", as_scheduler(self.scheduler))
        if self._ready is not None:
            check(self._ready, self.monitor, self.field)

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Step by the trigger; save the scheduler with the run.

        Raises:
            ValueError: The engine does not know the optimizer, or the schedule's name is taken.
        """
        others = (each for each in engine.handlers.values() if each is not self)
        taken = [each.name for each in others if isinstance(each, LRSchedule)]
        if self.name in taken or self.name in engine.objects:
            raise ValueError(
                f"the engine has an object {self.name!r} already; give this schedule another name: "
                "LRSchedule(..., name='critic_scheduler')"
            )
        if self._ready is not None:
            _check_whose(self._ready, engine)
            engine.objects[self.name] = self._ready
        else:  # build it before a checkpoint is loaded into it
            engine.on(Events.LOADING, stage=Stage.MEASURE)(self.begin)
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.note)
        engine.on(self._trigger)(self.step)
        if self._ready is None or isinstance(self._ready, ByUpdates):
            engine.on(Events.EPOCH_COMPLETED)(self.end_epoch)

    def begin(self, state: State[Any, Any]) -> None:
        """Build the schedule of this run, or check that the schedule of a continued run still fits.

        Raises:
            ValueError: The schedule depends on a length of the run that is not known.
        """
        optimizer = optimizer_of(state, self.optimizer)
        horizon = look_ahead(state, optimizer, self._trigger)
        before: LRScheduler | None = state.engine.objects.get(self.name)
        if state.iteration > 0 or state.control.position is not None:
            self._carry_on(state, before, horizon)
            return
        if before is not None:  # from another run of this engine
            reset(optimizer, self.field)
        state.engine.objects[self.name] = self._make(optimizer, horizon)

    def note(self, state: State[Any, Any]) -> None:
        """Save the horizon that the schedule was built for."""
        scheduler = self._of(state)
        if state.iteration > 0:  # torch looks for steps in this process only, and would warn
            scheduler.optimizer._opt_called = True  # type: ignore[attr-defined]
        if self._ready is None:
            horizon = look_ahead(state, scheduler.optimizer, self._trigger)
            state.recall(self, Noted).horizon = asdict(horizon)

    def step(self, state: State[Any, Any]) -> None:
        """Write the rate that was used, then step the scheduler."""
        scheduler = self._of(state)
        groups = scheduler.optimizer.param_groups
        if len(groups) == 1:
            state.metrics[self.metric] = read(groups[0], self.field)
        else:
            for number, group in enumerate(groups):
                state.metrics[f"{self.metric}/{group.get('name', number)}"] = read(
                    group, self.field
                )
        if not isinstance(scheduler, ReduceLROnPlateau):
            scheduler.step()
            if isinstance(scheduler, Scheduled) and scheduler.is_at_joint:
                state.fire(ScheduleEvents.PIECE_COMPLETED)
        elif (value := self._look(state)) is not None:
            scheduler.step(value)

    def end_epoch(self, state: State[Any, Any]) -> None:
        """Step a scheduler like timm's at the end of an epoch."""
        scheduler = self._of(state)
        if isinstance(scheduler, ByUpdates):
            scheduler.step_epoch(state.epoch, self._look(state))

    @property
    def _trigger(self) -> Trigger:
        by_metric = self.monitor is not None and not isinstance(self._ready, ByUpdates)
        default = Events.EPOCH_COMPLETED if by_metric else Events.STEP_COMPLETED
        return Trigger.of(self.when or default)

    def _of(self, state: State[Any, Any]) -> LRScheduler:
        """The scheduler of this run."""
        if self._ready is not None:
            return self._ready
        scheduler: LRScheduler = state.engine.objects[self.name]
        return scheduler

    def _make(self, optimizer: Optimizer, horizon: Horizon) -> LRScheduler:
        made = build(self.scheduler, optimizer, horizon, self._trigger, self.field)
        check(made, self.monitor, self.field)
        return made

    def _carry_on(
        self, state: State[Any, Any], before: LRScheduler | None, horizon: Horizon
    ) -> None:
        """Keep the schedule of a continued run, or rebuild it if the run has another length."""
        if before is None:
            raise RuntimeError(
                f"this engine has no schedule {self.name!r} for a run that is carried on, since it "
                "is built when a run starts; carry the state on with the engine that ran it, or "
                "resume from a checkpoint"
            )
        if not (changed := _changes(state.recall(self, Noted).horizon, asdict(horizon))):
            return
        reset(before.optimizer, self.field)
        made = state.engine.objects[self.name] = self._make(before.optimizer, horizon)
        advance(made, before.state_dict())
        logger.warning("the schedule %r is now that of a run with %s", self.name, changed)

    def _look(self, state: State[Any, Any]) -> float | None:
        """The metric; None if it was not written since the last look."""
        if self.monitor is None:
            return None
        monitored = state.recall(self, Monitored)
        return monitored.new_value(state, self.monitor, allow_stale=self.allow_stale)


@dataclass
class Noted:
    """The horizon that a schedule was built for."""

    horizon: dict[str, int | None] = field_of(default_factory=dict)


def _check_whose(scheduler: LRScheduler, engine: Engine[Any, Any]) -> None:
    """Refuse a scheduler of an optimizer that is not the engine's, if the engine has one."""
    known = [each for each in engine.objects.values() if isinstance(each, Optimizer)]
    if known and all(each is not scheduler.optimizer for each in known):
        raise ValueError(
            f"LRSchedule got a {type(scheduler).__name__} of an optimizer that is not among the "
            "engine's objects, so it would move no rate of this run; make it of the engine's "
            'optimizer, or name the other one: Engine(..., objects={"critic_optimizer": ...})'
        )


def _changes(old: dict[str, int | None], new: dict[str, int | None]) -> str:
    return ", ".join(f"{key}: {old[key]} -> {new[key]}" for key in old if old[key] != new[key])
