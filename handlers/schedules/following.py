"""What a schedule sees of its run: the rate that was used, and whether its length fits the run."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import inf
from typing import Any

from torch import Tensor
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    LambdaLR,
    LRScheduler,
    MultiplicativeLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)

from ...engine import EventEnum, Events, State
from ...engine.checks import warn
from ...engine.modules import plain_optimizer
from ..common import Monitored, group_values
from .horizon import Horizon
from .scheduled import ByUpdates, Scheduled

logger: logging.Logger = logging.getLogger("camshaft")
STEP_COMPLETED = Events.STEP_COMPLETED
BELOW = -1e-9
"""A rate below this is negative by more than a rounding error."""
LENGTHS = ("total_steps", "T_max", "total_iters", "T_0", "milestones")
"""The settings of torch's schedulers that say how long they are."""
MANY = 10
"""The ratio of lengths from which a scheduler was probably meant for the other clock."""
LOST = 2e-3
"""A rate that falls to this fraction in half of a run trains almost nothing afterwards."""
SETTERS = (LambdaLR, CyclicLR, OneCycleLR, CosineAnnealingWarmRestarts)
"""Torch's schedulers that compute each rate from the first one, not from what they find."""


@dataclass
class Noted(Monitored):
    """The horizon that a schedule follows, and where the epoch under way began."""

    horizon: dict[str, Any] = field(default_factory=dict)
    said: int | None = None
    """The batches of that epoch, as the data said."""
    began: tuple[int, int, int] = (0, 0, 0)
    """The epochs, batches and steps before it."""

    def begun(self, state: State[Any, Any], steps: int) -> tuple[int, int, int]:
        """The epochs, batches and steps that the run has made before the current epoch."""
        control = state.control
        if not control.in_epoch:
            return state.epoch, state.iteration, steps
        epochs, batches = state.epoch - 1, control.epoch_began
        known, made, _ = self.began
        return self.began if (known, made) == (epochs, batches) else (epochs, batches, steps)

    def by_now(self, state: State[Any, Any], planned: Horizon, made: int) -> Horizon:
        """The horizon by what the run has made: `planned` is what it would be by its limits alone.

        An epoch to come has the batches that the data says. Where it has said the same before the
        last epoch, it has those that the last epoch had.
        """
        if not self.horizon or planned.total is not None:
            return planned
        before, begun, said = Horizon(**self.horizon), self.begun(state, made), state.epoch_length
        length, steps = before.epoch_length, before.epoch_steps
        if said != self.said:
            length, steps = said, None
        elif begun[0] == self.began[0] + 1:
            given = begun[1] - self.began[1]
            length, steps = given, None if given == said else begun[2] - self.began[2]
        found = replace(planned, epoch_length=length, epoch_steps=steps, begun=before.begun)
        batches = before.begun[1] + (begun[0] - before.begun[0]) * (length or 0)
        now = (length, steps, planned.accumulate, begun[1])
        is_as_known = now == (before.epoch_length, before.epoch_steps, before.accumulate, batches)
        return found if is_as_known else replace(found, begun=begun)


class Rates:
    """The metrics of what the schedules of one optimizer move in one field; not saved.

    Args:
        state: The run.
        event: Announces the steps of the optimizer.
        metrics: Their names.
    """

    def __init__(self, state: State[Any, Any], event: EventEnum, metrics: list[str]) -> None:
        self.event = event
        self.metrics = metrics
        self.steps: int = self.count(state)
        """The optimizer's steps when the metrics were last written, or when this process began:
        what a resumed run has measured is right until it steps."""

    def count(self, state: State[Any, Any]) -> int:
        """The steps of the optimizer so far; 0 if nothing announces them."""
        return state.step if self.event is STEP_COMPLETED else state.counts[self.event]

    def write(self, state: State[Any, Any], scheduler: LRScheduler, field: str) -> None:
        """Write the values that the last step used, unless nothing has stepped since.

        If no event announces steps, each iteration counts as a step.
        """
        steps = self.count(state)
        if steps == self.steps and steps:
            return
        metrics = state.metrics
        for name in self.metrics:
            values = group_values(scheduler.optimizer, field, name)
            for each in values.values() if field == "lr" else ():
                if type(each) is float and each < BELOW:
                    raise RuntimeError(
                        f"the {type(scheduler).__name__} has set 'lr' to {each:.3g} for the last "
                        "step, which went the wrong way: it was stepped "
                        f"{count_of(scheduler)} times, more often than it is made for. Give it "
                        "the steps of the whole run, or step it by when=Events.ITERATION_COMPLETED "
                        "or Events.EPOCH_COMPLETED"
                    )
            if steps or not all(map(metrics.is_fresh, values)):
                for key, value in values.items():
                    metrics[key] = value
        self.steps = steps


@dataclass
class Following:
    """What a schedule keeps of its run in this process; not saved."""

    rates: Rates = field(init=False)
    """Set when the run starts."""
    count: int | None = None
    """How often the scheduler was stepped, as it says, after the handler's latest step."""
    built: Horizon | None = None
    """What the function that made the schedule was given."""
    assumed: Horizon | None = None
    """The same, if the schedule is for the steps that follow from the batches of the run."""
    unknown: Horizon | None = None
    """The horizon of a run whose length is unknown until its first epoch ends."""

    def build(self, scheduler: LRScheduler, horizon: Horizon, event: EventEnum | None) -> None:
        """Remember the horizon of a schedule that was built for it.

        A function that has corrected its number of steps by itself made a longer schedule.
        """
        self.built, self.assumed = horizon, None
        goes_by_steps = event not in (None, Events.ITERATION_COMPLETED, Events.EPOCH_COMPLETED)
        with suppress(ValueError):  # an unknown number is not wrong
            if goes_by_steps and horizon.is_asked and horizon.steps != horizon.max_steps:
                is_shorter = (length_in_steps(scheduler) or 0) <= horizon.steps
                self.assumed = horizon if is_shorter else None

    def check(self, state: State[Any, Any], scheduler: LRScheduler, name: str) -> None:
        """Refuse steps that the handler did not make, and more steps than there are iterations."""
        count = count_of(scheduler)
        if self.count is not None and count > self.count:
            kind = type(scheduler).__name__
            raise RuntimeError(
                f"the {kind} is stepped by hand too: its count went from {self.count} to {count} "
                f"since LRSchedule({name}) has stepped it. Leave scheduler.step() out: LRSchedule "
                "calls it, by its when="
            )
        if self.assumed and not self.assumed.total and count >= state.iteration:
            raise RuntimeError(
                f"iteration {state.iteration} makes several optimizer steps, and the schedule "
                f"{name!r} is for a run of {self.assumed.steps}, with at most one in an iteration: "
                "say how many steps the whole run makes, as in LRSchedule(..., "
                f"horizon=12 * {self.assumed.limit}) for 12 steps in each iteration"
            )

    def compare(self, state: State[Any, Any], scheduler: LRScheduler, name: str) -> None:
        """Warn if the first epoch made more or fewer steps than the schedule was built for."""
        if self.assumed is None or not (made := count_of(scheduler)):
            return
        wanted, skipped = self.assumed.steps, state.counts[Events.STEP_SKIPPED]
        found = self.assumed.at_pace(made + skipped, state.iteration)
        if abs(found - wanted) * 10 > wanted:
            logger.warning(
                "the schedule %r is for a run of %d steps, and at the pace of the first epoch, %d "
                "steps in %d iterations, the run makes about %d: write LRSchedule(..., horizon=n), "
                "where n is the exact number of steps of the whole run",
                *(name, wanted, made, state.iteration, found),
            )


def count_of(scheduler: LRScheduler) -> int:
    """How often a scheduler was stepped, as it says itself; a chained one has it in its parts."""
    while (count := getattr(scheduler, "last_epoch", None)) is None:
        scheduler = scheduler._schedulers[0]  # type: ignore[attr-defined]
    return int(count)


def step_by_metric(scheduler: ReduceLROnPlateau, value: float, metric: str | None) -> None:
    """Step by a metric; tell of one below 0 beside a threshold that is a share of it."""
    was_below = -inf < scheduler.best < 0
    scheduler.step(value)
    is_share = scheduler.threshold_mode == "rel" and scheduler.threshold > 0
    if is_share and scheduler.best < 0 and not was_below:
        # torch 2.13 compares with best * (1 - threshold), which is worse than a best below 0.
        warn(
            f"the metric {metric!r} is {value:.6g}. Below 0, ReduceLROnPlateau takes a value that "
            f"is equal, or worse by a share of {scheduler.threshold:g}, for a better one, and may "
            "never lower the rate. Pass threshold_mode='abs' to it"
        )


def refuse_beside(schedulers: dict[str, LRScheduler]) -> None:
    """Refuse schedules of one optimizer that overwrite what another one has set.

    Most of torch's schedulers compose: each goes on from the rate that it finds. The others are a
    warning, since one of them may have ended.

    Raises:
        ValueError: Two move the same values, and one of them is of pieces, or like timm's.
    """
    for (one, first), (other, second) in combinations(schedulers.items(), 2):
        shared = _moved_by(first) & _moved_by(second)
        sets = isinstance(first, Scheduled | ByUpdates) or isinstance(second, Scheduled | ByUpdates)
        own, other_own = (plain_optimizer(each.optimizer) for each in (first, second))
        if shared and own is not other_own:  # one of them is several optimizers
            raise ValueError(
                f"the schedules {one!r} and {other!r} both move {min(shared)!r} of one optimizer, "
                "and one of them also that of others: give each optimizer a schedule of its own, "
                "LRSchedule(..., optimizer=<its name>, name=<its name>), or all of them one"
            )
        if shared and sets:
            raise ValueError(
                f"the schedules {one!r} and {other!r} move {min(shared)!r} of one optimizer, and "
                "one of them sets it whatever the other makes of it: write one schedule of both, "
                "such as warmup(500).then(cosine()), or torch's SequentialLR or ChainedScheduler; "
                "for several optimizers, pass optimizer="
            )
        if shared:
            warn_of_lost(first, second)


def warn_of_lost(*schedulers: LRScheduler) -> None:
    """Warn of a rate that a scheduler sets whatever others, or the other groups, make of it."""
    setters = [each for each in schedulers if isinstance(each, SETTERS)]
    if setters and len(schedulers) > 1:
        kinds = " and ".join(type(each).__name__ for each in schedulers)
        warn(
            f"{kinds} move one rate, and {type(setters[0]).__name__} sets it at each of its steps "
            "whatever the other makes of it. Write one schedule of both, such as "
            "warmup(500).then(cosine()), or torch's SequentialLR"
        )
    for each in schedulers:
        parts = getattr(each, "_schedulers", [])
        if isinstance(each, SequentialLR) and MultiplicativeLR in map(type, parts[1:2]):
            first, end = parts[0], getattr(each, "_milestones", [0])[0]
            least = getattr(first, "factor", getattr(first, "start_factor", 1.0))
            if least < 1 and end <= first.total_iters:
                warn(
                    "MultiplicativeLR multiplies the rate that it finds, which "
                    f"{type(first).__name__} leaves low at step {end}. Write LambdaLR, whose "
                    "factors are those of the optimizer's rate, or a later milestone"
                )
        groups = each.optimizer.param_groups
        rates = [id(group["lr"]) for group in groups if isinstance(group["lr"], Tensor)]
        wanted = getattr(each, "lr_lambdas", None) or [group.get("max_lr") for group in groups]
        if len({*rates}) < len(rates) and any(one != wanted[0] for one in wanted):
            warn(
                "parameter groups share one tensor as 'lr', so the rates that this "
                f"{type(each).__name__} gives to each are all the last one: give each group its "
                "own, {'params': ..., 'lr': lr.clone()}"
            )


def _moved_by(scheduler: LRScheduler) -> set[str]:
    """The fields of the parameter groups that a scheduler moves."""
    field = str(getattr(scheduler, "field", "lr"))
    has_cycle = getattr(scheduler, "cycle_momentum", False)
    return {field, "momentum", "betas.0"} if has_cycle else {field}


def length_in_steps(scheduler: LRScheduler) -> int | None:
    """The number of steps after which a schedule ends; None if unknown."""
    if isinstance(scheduler, Scheduled):
        return scheduler.total
    if parts := getattr(scheduler, "_schedulers", None):
        if joints := getattr(scheduler, "_milestones", None):
            last = length_in_steps(parts[-1])
            return None if last is None else joints[-1] + last
        lengths = [length_in_steps(each) for each in parts if falls(each)]  # without a warm-up
        return max((each for each in lengths if each is not None), default=None)
    for name in LENGTHS:
        if found := getattr(scheduler, name, None):
            return int(found if isinstance(found, int | float) else max(found))
    return None


def advice_by_steps(scheduler: LRScheduler, horizon: Horizon) -> str | None:
    """Advice for a scheduler that is stepped after each optimizer step; None if it is right.

    Only clear mistakes get advice: a scheduler that ends with the epochs or the batches of the run,
    and one that takes the rate to almost 0.

    Raises:
        ValueError: The length of the run is not known.
    """
    steps, epochs, length = horizon.steps, horizon.epochs, length_in_steps(scheduler)
    stepped = f"LRSchedule steps it after each of the {steps} optimizer steps"
    for factor in getattr(scheduler, "lr_lambdas", ()):  # those of transformers are partials
        planned = getattr(factor, "keywords", {}).get("num_training_steps")
        # Its cosine climbs again after the last planned step (transformers 5.23).
        if planned is not None and planned < steps and factor(steps) > factor(planned):
            return (
                f"the {type(scheduler).__name__} was made for {planned} steps, after which its "
                f"rate climbs again, and {stepped} of this run: give num_training_steps={steps}"
            )
    is_plateau = isinstance(scheduler, ReduceLROnPlateau)
    if is_plateau or not falls(scheduler) or steps < MANY:  # too few steps to judge
        return None
    ends = f"the {type(scheduler).__name__} is over after {length} of its steps, which"
    by_epochs = (
        "write LRSchedule(..., when=Events.EPOCH_COMPLETED) to step it after each epoch, or give "
        "its lengths in optimizer steps"
    )
    size, rest = _shrinks(scheduler, steps // 2, epochs)
    if size is not None and rest < LOST:
        return (
            f"the {type(scheduler).__name__} multiplies the rate every {size} steps, and {stepped} "
            f"of this run, so that half of them have less than {rest:.0e} of the rate: {by_epochs}"
        )
    if length is None:
        return None
    is_short = length <= 2 * epochs and steps >= (2 if length == epochs else MANY) * length
    if epochs > 1 and is_short:
        return f"{ends} is a number of epochs, and {stepped} of this run: {by_epochs}"
    if length == horizon.limit and steps < length:
        return (
            f"{ends} are the batches of this run, and {stepped}: give its lengths in optimizer "
            "steps, as horizon.steps of a function of optimizer and horizon"
        )
    return None


def advice_by_epochs(scheduler: LRScheduler, horizon: Horizon) -> str | None:
    """Advice for a scheduler that is stepped after each epoch; None if it is right.

    Raises:
        ValueError: The length of the run is not known.
    """
    length, epochs = length_in_steps(scheduler), horizon.epochs
    if length is None or length <= epochs:
        return None
    totals = [each for each in (horizon.steps, horizon.limit) if each is not None]
    is_near = any(length >= MANY * epochs and abs(length - each) * MANY <= each for each in totals)
    if length not in totals and not is_near:
        return None
    return (
        f"the {type(scheduler).__name__} is over after {length} of its steps, which is a number of "
        f"optimizer steps, and LRSchedule(when=Events.EPOCH_COMPLETED) steps it {epochs} times in "
        "this run: leave when= out to step it after each optimizer step, or give its lengths in "
        "epochs"
    )


def falls(scheduler: LRScheduler) -> bool:
    """True if the rate ends below its start; a warm-up of some steps is right on any clock."""
    if parts := getattr(scheduler, "_schedulers", None):
        return falls(parts[-1])
    if isinstance(scheduler, ConstantLR):
        return False
    end = getattr(scheduler, "end_factor", None)
    if end is not None:
        return bool(end < getattr(scheduler, "start_factor", 1.0))
    return bool(getattr(scheduler, "gamma", 0.0) < 1)


def _shrinks(scheduler: LRScheduler, steps: int, epochs: int) -> tuple[int | None, float]:
    """Every how many steps a scheduler multiplies the rate, and what `steps` of them leave of it.

    Only a scheduler that would move by epochs too is looked at: others are not meant by epochs.
    """
    if getattr(scheduler, "_milestones", None):
        return _shrinks(scheduler._schedulers[-1], steps, epochs)  # type: ignore[attr-defined]
    gamma, size = getattr(scheduler, "gamma", None), getattr(scheduler, "step_size", 1)
    if not isinstance(gamma, float) or length_in_steps(scheduler) is not None or size >= epochs:
        return None, 1.0
    return size, float(gamma ** (steps // size))
