"""Learning-rate schedules, and schedules of whatever else an optimizer is set to."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, replace
from dataclasses import field as field_of
from itertools import count
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger
from ...engine.checks import warn
from ...engine.modules import moves, optimizers_in, plain_optimizer
from ..common import advance, group_values, write
from .build import (
    Given,
    Make,
    as_scheduler,
    build,
    check_scheduler,
    check_total,
    check_whose,
    each_event,
    optimizer_of,
    units,
    wants_horizon,
)
from .following import (
    Following,
    Noted,
    Rates,
    advice_by_epochs,
    advice_by_steps,
    count_of,
    refuse_beside,
    step_by_metric,
)
from .horizon import Horizon, horizon_of, update_of
from .scheduled import ByUpdates, Scheduled

logger: logging.Logger = logging.getLogger("camshaft")


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
    `lambda optimizer, horizon: OneCycleLR(optimizer, 0.1, total_steps=horizon.steps)`. The horizon
    is passed by its name. A function without an argument of this name is called with the optimizer
    alone, such as `partial(StepLR, step_size=1)`.

    Args:
        scheduler: Any torch scheduler; a scheduler like timm's, whose `step_update` is called after
            each update and whose `step` is called after each epoch; a schedule of pieces, or one
            for each group; or a function that makes one of these, of the optimizer, or of the
            optimizer and the horizon. It is saved with the run.
        when: When to step: `STEP_COMPLETED` by default, with a `metric` `EPOCH_COMPLETED`.
        metric: The metric that `ReduceLROnPlateau` looks at, such as `"val/loss"`.
        name: Tells several schedules apart: with `name="critic"` the metric is `"lr/critic"`, and
            the scheduler is `engine.objects["critic_scheduler"]`. Without a name these are `"lr"`
            and `"scheduler"`, or for another field `"<field>"` and `"<field>_scheduler"`.
        field: What pieces move: `"lr"`, `"weight_decay"`, `"momentum"`, `"betas.0"`.
        optimizer: The optimizer of a schedule that is built when the run starts, or its name in
            `engine.objects`, `"optimizer"` by default. Where several optimizers make one step, the
            default is all of them, each by the factor of its own rate.
        horizon: The optimizer steps of the whole run, for a schedule that is built when the run
            starts: where an iteration makes several steps, or not each one makes a step. By
            default each batch makes one, or each `accumulate` batches.
        allow_stale: True to let `ReduceLROnPlateau` look more often than the metric is measured, as
            in `EarlyStopping`.

    Raises:
        TypeError: `scheduler` cannot be stepped.
        ValueError: `ReduceLROnPlateau` has no `metric`, or another scheduler has one.
    """

    scheduler: Given | Make
    _: KW_ONLY
    when: EventEnum | Trigger | None = None
    metric: str | None = None
    name: str = ""
    field: str = "lr"
    optimizer: Optimizer | str | None = None
    allow_stale: bool = False
    horizon: int | None = None
    written_metric: str = field_of(init=False)
    """The metric of the rates."""
    object: str = field_of(init=False, repr=False)
    """The scheduler's name in `engine.objects`."""
    _ready: LRScheduler | None = field_of(init=False, repr=False)

    def __post_init__(self) -> None:
        usual = "scheduler" if self.field == "lr" else f"{self.field}_scheduler"
        metric = self.field if self.name in ("", usual) else f"{self.field}/{self.name}"
        ready, name = as_scheduler(self.scheduler), self.name or usual
        vars(self).update(written_metric=metric, name=name, object=_object(name), _ready=ready)
        if self._ready is not None:
            check_scheduler(self._ready, self.metric, self.field)
        if self.horizon is not None:
            check_total(self.horizon, self.scheduler)

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Step by the trigger; save the scheduler with the run.

        Raises:
            ValueError: The engine does not know the optimizer, or the schedule's name is taken.
        """
        self._refuse_taken(engine)
        if self._ready is not None:
            check_whose(self._ready, engine)
            engine.objects[self.object] = self._ready
        else:  # build it before a checkpoint is loaded into it
            engine.on(Events.LOADING, stage=Stage.MEASURE)(self.begin)
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.note)
        if self._ready is None and self.horizon is None and wants_horizon(self.scheduler):
            # after functions of the script, which may change what an epoch is
            engine.on(Events.EPOCH_STARTED, stage=Stage.REPORT)(self.follow)
        if self._event not in (Events.STEP_COMPLETED, Events.ITERATION_COMPLETED):
            engine.on(Events.ITERATION_COMPLETED, stage=Stage.MEASURE)(self.measure)
        engine.on(self._trigger)(self.step)
        engine.on(Events.EPOCH_COMPLETED)(self.end_epoch)

    def begin(self, state: State[Any, Any]) -> None:
        """Build the schedule of a new run; check that a continued run still fits its schedule."""
        optimizer = optimizer_of(state, self.optimizer)
        horizon = self._by_now(state, optimizer)
        before: LRScheduler | None = state.engine.objects.get(self.object)
        if not state.is_new:
            self._carry_on(state, before)
            return
        if before is not None and self._beside(state, optimizer)[0] is self:
            self._reset(optimizer)  # another run of this engine has moved it
        self._build(state, optimizer, horizon)

    def note(self, state: State[Any, Any]) -> None:
        """Save the horizon that the schedule was built for; look at what moves the same rates."""
        scheduler = self._of(state)
        # torch would warn: it looks for steps of this process, by the wrapper if there is one
        if state.iteration > 0 or plain_optimizer(scheduler.optimizer) is not scheduler.optimizer:
            scheduler.optimizer._opt_called = True  # type: ignore[attr-defined]
        if state.is_new and self._ready is not None and (begun := count_of(scheduler)):
            logger.warning(
                "the scheduler %r begins this run at its step %d, as an earlier run or the script "
                "has left it; a function, such as partial(StepLR, step_size=10), makes a new one",
                *(self.object, begun),
            )
        horizon = self.end_with_run(state)
        beside = self._beside(state, scheduler.optimizer)
        if len(beside) > 1:
            refuse_beside({each.object: each._of(state) for each in beside})
        following = state.recall(self, Following, saved=False)
        first, *others = (each for each in beside if each.field == self.field)
        if self is first:
            names = [each.written_metric for each in (first, *others)]
            following.rates = Rates(state, self._clock(state, scheduler.optimizer), names)
        else:
            following.rates = state.recall(first, Following, saved=False).rates
        is_fitted = isinstance(scheduler, Scheduled)  # pieces last as long as the run, or as given
        if state.iteration == 0 and not is_fitted and not self._warn_of_clock(scheduler, horizon):
            following.unknown = horizon

    def end_with_run(self, state: State[Any, Any]) -> Horizon:
        """Let the schedule end with the run: its limits or windows may have changed."""
        horizon = self._by_now(state, self._of(state).optimizer)
        if self._ready is None:
            state.recall(self, Noted).horizon = asdict(horizon)
            if state.iteration > 0:
                self._correct(state, horizon)
        return horizon

    def follow(self, state: State[Any, Any]) -> None:
        """Let the schedule end with the run, where an epoch had other batches than was known."""
        noted, optimizer = state.recall(self, Noted), self._of(state).optimizer
        horizon, said = self._by_now(state, optimizer), noted.said
        noted.began = noted.begun(state, self._made(state, optimizer))
        noted.horizon, noted.said = asdict(horizon), state.epoch_length
        is_other = said == noted.said is not None and horizon.epoch_length != said
        if self._correct(state, horizon) and is_other:
            logger.warning(
                "epoch %d had other batches than the %d that the data said; the schedule %r goes "
                "on to the end of a run of %d steps",
                *(state.epoch - 1, said, self.object, horizon.steps),
            )

    def measure(self, state: State[Any, Any]) -> None:
        """Write the rate that was used, if the schedule moves more rarely than the optimizer."""
        scheduler, following = self._of(state), state.recall(self, Following, saved=False)
        following.rates.write(state, scheduler, self.field)
        if following.count is None:
            following.count = count_of(scheduler)

    def step(self, state: State[Any, Any]) -> None:
        """Write the rate that was used, then step the scheduler."""
        scheduler, following = self._of(state), state.recall(self, Following, saved=False)
        following.rates.write(state, scheduler, self.field)
        following.check(state, scheduler, self.object)
        if not isinstance(scheduler, ReduceLROnPlateau):
            scheduler.step()
            if isinstance(scheduler, Scheduled) and scheduler.is_at_joint:
                state.fire(ScheduleEvents.PIECE_COMPLETED)
        elif (value := self._look(state)) is not None:
            step_by_metric(scheduler, value, self.metric)
        following.count = count_of(scheduler)

    def end_epoch(self, state: State[Any, Any]) -> None:
        """Step a scheduler like timm's; compare the first epoch with what a schedule is for."""
        scheduler = self._of(state)
        if isinstance(scheduler, ByUpdates):
            scheduler.step_epoch(state.epoch, self._look(state))
        if state.epoch == 1:
            following = state.recall(self, Following, saved=False)
            following.compare(state, scheduler, self.object)
            if following.unknown is not None and state.max_epochs is not None:  # now it is known
                total = (following.rates.count(state) or state.iteration) * state.max_epochs
                found = replace(following.unknown, epoch_length=state.iteration, total=total)
                self._warn_of_clock(scheduler, found)

    def _refuse_taken(self, engine: Engine[Any, Any]) -> None:
        """Refuse a name that another schedule or object has."""
        others = [each for each in engine.find(LRSchedule) if each is not self]
        taken = {each.object for each in others}
        taken |= {name for name, each in engine.objects.items() if each is not self._ready}
        if self.object in taken:
            numbered = map(f"{self.name.removesuffix('_scheduler')}_{{}}".format, count(2))
            free = next(name for name in numbered if _object(name) not in taken)
            raise ValueError(
                f"the engine has an object {self.object!r} already; give this schedule another "
                f"name: LRSchedule(..., name={free!r})"
            )
        if self._ready is not None and any(each._ready is self._ready for each in others):
            raise ValueError(
                f"an LRSchedule of this engine steps the same {type(self._ready).__name__} already"
            )

    def _beside(self, state: State[Any, Any], optimizer: Optimizer) -> list[LRSchedule]:
        """The schedules of this optimizer, in the order in which they are attached."""
        found, objects = list[LRSchedule](), state.engine.objects
        for each in state.engine.find(LRSchedule):
            if each is self or (each.object in objects and moves(objects[each.object], optimizer)):
                found.append(each)
        return found

    def _warn_of_clock(self, scheduler: LRScheduler, horizon: Horizon) -> bool:
        """Warn of a scheduler on another clock than its lengths; False if the run's is unknown."""
        advice = None
        try:
            if self._event is Events.EPOCH_COMPLETED:
                advice = advice_by_epochs(scheduler, horizon)
            elif self._event is Events.STEP_COMPLETED and self.when is None:
                advice = advice_by_steps(scheduler, horizon)
        except ValueError:
            return False
        if advice is not None:
            warn(advice)
        return True

    @property
    def _trigger(self) -> Trigger:
        by_metric = self.metric is not None and not isinstance(self._ready, ByUpdates)
        default = Events.EPOCH_COMPLETED if by_metric else Events.STEP_COMPLETED
        return Trigger.of(self.when or default)

    @property
    def _event(self) -> EventEnum | None:
        """The event at whose every occurrence the schedule is stepped, if there is one."""
        return each_event(self._trigger)

    def _clock(self, state: State[Any, Any], optimizer: Optimizer) -> EventEnum:
        """The event that announces the steps of an optimizer, as far as this can be known."""
        if (update := update_of(state, optimizer)) is not None:
            return update.event
        event = self._event
        return Events.STEP_COMPLETED if event is None or isinstance(event, Events) else event

    def _by_now(self, state: State[Any, Any], optimizer: Optimizer) -> Horizon:
        """The horizon of the run in steps of this optimizer, by what it has made.

        Raises:
            ValueError: The steps of another optimizer would step the schedule. A ready-made
                scheduler may be stepped by them, if the script says so.
        """
        goes_by_steps = Events.STEP_COMPLETED in self._trigger.events
        event = self._clock(state, optimizer)
        is_said = self._ready is not None and self.when is not None
        if goes_by_steps and event is not Events.STEP_COMPLETED and not is_said:
            raise ValueError(
                f"the steps of this optimizer are announced by {event!r}, and the schedule goes "
                f"by {self._trigger!r}: pass LRSchedule(..., when={event!r})"
            )
        planned = horizon_of(state, optimizer, self.horizon)
        if self._ready is not None:
            return planned
        return state.recall(self, Noted).by_now(state, planned, self._made(state, optimizer))

    def _made(self, state: State[Any, Any], optimizer: Optimizer) -> int:
        """The steps that this optimizer has made, and those that were skipped, which count too."""
        if (event := self._clock(state, optimizer)) is not Events.STEP_COMPLETED:
            return state.counts[event]
        return state.step + state.counts[Events.STEP_SKIPPED]

    def _correct(self, state: State[Any, Any], horizon: Horizon) -> bool:
        """Let the schedule end where the run does, if it was made for another end."""
        scheduler, following = self._of(state), state.recall(self, Following, saved=False)
        with suppress(ValueError):  # what cannot be known corrects nothing
            if isinstance(scheduler, Scheduled):
                end = scheduler.end and units(self._trigger, horizon, self.scheduler)
                if end == scheduler.end or end is None:
                    return False
                scheduler.end_at(int(end))
                return True
            built = following.built
            if built is None or not built.is_asked or built.steps == horizon.steps:
                return False
            if len(self._beside(state, scheduler.optimizer)) == 1:
                self._rebuild(state, scheduler, horizon)
                return True
        return False

    def _rebuild(self, state: State[Any, Any], before: LRScheduler, horizon: Horizon) -> None:
        """Make the schedule anew for another horizon, and go to where it is."""
        self._reset(before.optimizer)
        advance(self._build(state, before.optimizer, horizon), before.state_dict())

    def _reset(self, optimizer: Optimizer) -> None:
        """Set the groups back to the values that they had before a schedule moved them."""
        for group in optimizer.param_groups:
            if f"initial_{self.field}" in group:
                write(group, self.field, group[f"initial_{self.field}"])

    def _of(self, state: State[Any, Any]) -> LRScheduler:
        """The scheduler of this run."""
        return self._ready or state.engine.objects[self.object]

    def _build(self, state: State[Any, Any], optimizer: Optimizer, horizon: Horizon) -> LRScheduler:
        made = build(self.scheduler, optimizer, horizon, self._trigger, self.field)
        check_scheduler(made, self.metric, self.field)
        state.engine.objects[self.object] = made
        state.recall(self, Following, saved=False).build(made, horizon, self._event)
        return made

    def _carry_on(self, state: State[Any, Any], before: LRScheduler | None) -> None:
        """Keep the schedule of a continued run, or rebuild it if the run has another length."""
        if before is None:
            raise RuntimeError(
                f"this engine has no schedule {self.object!r} for a run that is carried on, since "
                "it is built when a run starts; carry the state on with the engine that ran it, or "
                "resume from a checkpoint"
            )
        horizon = self._by_now(state, before.optimizer)
        changed = _changes(state.recall(self, Noted).horizon, asdict(horizon))
        if not changed or not wants_horizon(self.scheduler):
            return
        beside = self._beside(state, before.optimizer)
        names = [repr(each.object) for each in beside if each.field == self.field]
        if len(names) > 1:  # their changes combine
            raise ValueError(
                f"this run has another length ({changed}), and the schedules {' and '.join(names)} "
                "of one optimizer cannot be rebuilt for it one by one: combine them into one, such "
                "as SequentialLR or ChainedScheduler"
            )
        self._rebuild(state, before, horizon)
        logger.warning("the schedule %r is now that of a run with %s", self.object, changed)

    def _look(self, state: State[Any, Any]) -> float | None:
        """The metric; None if it was not written since the last look."""
        if self.metric is None:
            return None
        monitored = state.recall(self, Noted)
        return monitored.new_value(state, self.metric, allow_stale=self.allow_stale)


def _object(name: str) -> str:
    """The name of a schedule's object, which no module would have."""
    return name if "scheduler" in name else f"{name}_scheduler"


def _changes(old: dict[str, Any], new: dict[str, Any]) -> str:
    names = [key for key in old if key != "begun" and old[key] != new[key]]
    return ", ".join(f"{key}: {old[key]} -> {new[key]}" for key in names)


def rates(state: State[Any, Any]) -> dict[str, Any]:
    """The rates that rows of this moment have, whether or not they were measured in it.

    A rate that a schedule moves is the metric that it has written, or before the first step what
    the optimizer has. The others are read where rows are written, so that they cost nothing at a
    step. Their name is `"lr"`, with several optimizers `"lr/critic"` for
    `objects["critic_optimizer"]`; with several parameter groups each has one, as in `LRSchedule`.
    """
    engine, metrics = state.engine, state.metrics
    by_schedules, moved = list[Optimizer](), dict[str, Any]()
    for each in engine.find(LRSchedule):
        if each.object in engine.objects:
            optimizer = engine.objects[each.object].optimizer
            moved |= group_values(optimizer, each.field, each.written_metric)
            by_schedules += optimizers_in(optimizer) if each.field == "lr" else []
    optimizers = {name: o for name, o in engine.objects.items() if isinstance(o, Optimizer)}
    found = dict[str, Any]()
    for name, optimizer in optimizers.items():
        if optimizer not in by_schedules:
            own = name.removesuffix("optimizer").rstrip("_")
            metric = f"lr/{own}" if own and len(optimizers) > 1 else "lr"
            for key, rate in group_values(optimizer, "lr", metric).items():
                if key not in metrics:
                    found[key] = rate
    for key, rate in moved.items():
        found[key] = metrics.get(key, rate)
    return found
