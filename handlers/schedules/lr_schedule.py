"""Learning-rate schedules, and schedules of whatever else an optimizer is set to."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from dataclasses import field as field_of
from itertools import count
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger
from ...engine.modules import plain_optimizer
from ..common import Monitored, advance, group_values, read
from .build import (
    Given,
    Make,
    as_scheduler,
    build,
    check,
    look_ahead,
    optimizer_of,
    reset,
    wants_horizon,
)
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
    `lambda optimizer, horizon: OneCycleLR(optimizer, 0.1, total_steps=horizon.steps)`. A function
    of the optimizer alone will do as well, such as `partial(StepLR, step_size=1)`.

    Args:
        scheduler: Any torch scheduler; a scheduler like timm's, whose `step_update` is called after
            each update and whose `step` is called after each epoch; a schedule of pieces, or one
            for each group; or a function that makes one of these, of the optimizer, or of the
            optimizer and the horizon. It is saved with the run.
        when: When to step: `STEP_COMPLETED` by default, with a `monitor` `EPOCH_COMPLETED`.
        monitor: The metric that `ReduceLROnPlateau` looks at, such as `"val/loss"`.
        name: Tells several schedules apart: with `name="critic"` the metric is `"lr/critic"`, and
            the scheduler is `engine.objects["critic_scheduler"]`. Without a name these are `"lr"`
            and `"scheduler"`, or for another field `"<field>"` and `"<field>_scheduler"`.
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
    object: str = field_of(init=False, repr=False)
    """The scheduler's name in `engine.objects`."""
    _ready: LRScheduler | None = field_of(init=False, repr=False)

    def __post_init__(self) -> None:
        usual = "scheduler" if self.field == "lr" else f"{self.field}_scheduler"
        metric = self.field if self.name in ("", usual) else f"{self.field}/{self.name}"
        ready, name = as_scheduler(self.scheduler), self.name or usual
        vars(self).update(metric=metric, name=name, object=_object(name), _ready=ready)
        if self._ready is not None:
            check(self._ready, self.monitor, self.field)

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Step by the trigger; save the scheduler with the run.

        Raises:
            ValueError: The engine does not know the optimizer, or the schedule's name is taken.
        """
        self._refuse_taken(engine)
        if self._ready is not None:
            _check_whose(self._ready, engine)
            engine.objects[self.object] = self._ready
        else:  # build it before a checkpoint is loaded into it
            engine.on(Events.LOADING, stage=Stage.MEASURE)(self.begin)
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.note)
        engine.on(self._trigger)(self.step)
        if self._ready is None or isinstance(self._ready, ByUpdates):
            engine.on(Events.EPOCH_COMPLETED)(self.end_epoch)

    def begin(self, state: State[Any, Any]) -> None:
        """Build the schedule of a new run; check that a continued run still fits its schedule."""
        optimizer = optimizer_of(state, self.optimizer)
        horizon = look_ahead(state, optimizer, self._trigger)
        before: LRScheduler | None = state.engine.objects.get(self.object)
        if state.iteration > 0 or state.control.position is not None:
            self._carry_on(state, before, horizon)
            return
        if before is not None:  # from another run of this engine
            reset(optimizer, self.field)
        state.engine.objects[self.object] = self._make(optimizer, horizon)

    def note(self, state: State[Any, Any]) -> None:
        """Save the horizon that the schedule was built for."""
        scheduler = self._of(state)
        # torch would warn: it looks for steps of this process, by the wrapper if there is one
        if state.iteration > 0 or plain_optimizer(scheduler.optimizer) is not scheduler.optimizer:
            scheduler.optimizer._opt_called = True  # type: ignore[attr-defined]
        if self._ready is None:
            horizon = look_ahead(state, scheduler.optimizer, self._trigger)
            state.recall(self, self._memory).horizon = asdict(horizon)

    def step(self, state: State[Any, Any]) -> None:
        """Write the rate that was used, then step the scheduler."""
        scheduler = self._of(state)
        groups = scheduler.optimizer.param_groups
        if len(groups) == 1:
            state.metrics[self.metric] = read(groups[0], self.field)
        else:
            state.metrics.update(group_values(scheduler.optimizer, self.field, self.metric))
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

    def _refuse_taken(self, engine: Engine[Any, Any]) -> None:
        """Refuse a name that another schedule or object has."""
        others = (each for each in engine.handlers.values() if each is not self)
        taken = {each.object for each in others if isinstance(each, LRSchedule)}
        taken |= {name for name, each in engine.objects.items() if each is not self._ready}
        if self.object in taken:
            stem = self.name.removesuffix("_scheduler")
            free = next(
                name for name in map(f"{stem}_{{}}".format, count(2)) if _object(name) not in taken
            )
            raise ValueError(
                f"the engine has an object {self.object!r} already; give this schedule another "
                f"name: LRSchedule(..., name={free!r})"
            )

    @property
    def _trigger(self) -> Trigger:
        by_metric = self.monitor is not None and not isinstance(self._ready, ByUpdates)
        default = Events.EPOCH_COMPLETED if by_metric else Events.STEP_COMPLETED
        return Trigger.of(self.when or default)

    @property
    def _memory(self) -> type[Noted]:
        """What a schedule remembers that is built when the run starts."""
        return Noted if self.monitor is None else NotedAndMonitored

    def _of(self, state: State[Any, Any]) -> LRScheduler:
        """The scheduler of this run."""
        if self._ready is not None:
            return self._ready
        scheduler: LRScheduler = state.engine.objects[self.object]
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
                f"this engine has no schedule {self.object!r} for a run that is carried on, since "
                "it is built when a run starts; carry the state on with the engine that ran it, or "
                "resume from a checkpoint"
            )
        changed = _changes(state.recall(self, self._memory).horizon, asdict(horizon))
        if not changed or not wants_horizon(self.scheduler):
            return
        reset(before.optimizer, self.field)
        made = state.engine.objects[self.object] = self._make(before.optimizer, horizon)
        advance(made, before.state_dict())
        logger.warning("the schedule %r is now that of a run with %s", self.object, changed)

    def _look(self, state: State[Any, Any]) -> float | None:
        """The metric; None if it was not written since the last look."""
        if self.monitor is None:
            return None
        monitored = state.recall(self, Monitored if self._ready is not None else NotedAndMonitored)
        return monitored.new_value(state, self.monitor, allow_stale=self.allow_stale)


@dataclass
class Noted:
    """The horizon that a schedule was built for."""

    horizon: dict[str, int | None] = field_of(default_factory=dict)


@dataclass
class NotedAndMonitored(Noted, Monitored):
    """The same of a schedule that looks at a metric."""


def _object(name: str) -> str:
    """The name of a schedule's object: none that a module would have."""
    return name if "scheduler" in name else f"{name}_scheduler"


def _check_whose(scheduler: LRScheduler, engine: Engine[Any, Any]) -> None:
    """Refuse a scheduler of an optimizer that is not the engine's, if the engine has one."""
    known = [each for each in engine.objects.values() if isinstance(each, Optimizer)]
    optimizer = plain_optimizer(scheduler.optimizer)
    if known and all(each is not optimizer for each in known):
        raise ValueError(
            f"LRSchedule got a {type(scheduler).__name__} of an optimizer that is not among the "
            "engine's objects, so it would move no rate of this run; make it of the engine's "
            'optimizer, or name the other one: Engine(..., objects={"critic_optimizer": ...})'
        )


def _changes(old: dict[str, int | None], new: dict[str, int | None]) -> str:
    return ", ".join(f"{key}: {old[key]} -> {new[key]}" for key in old if old[key] != new[key])
