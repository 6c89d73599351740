"""Schedules whose lengths are counted on another clock than the one that steps them."""

from __future__ import annotations

from torch.optim.lr_scheduler import ConstantLR, LRScheduler, ReduceLROnPlateau

from .horizon import Horizon
from .scheduled import Scheduled

LENGTHS = ("total_steps", "T_max", "total_iters", "T_0", "milestones")
"""The settings of torch's schedulers that say how long they are."""
MANY = 10
"""The ratio of lengths from which a scheduler was probably meant for the other clock."""
LOST = 2e-3
"""A rate that falls to this fraction in half of a run trains almost nothing afterwards."""


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
    if isinstance(scheduler, ReduceLROnPlateau) or not falls(scheduler):
        return None
    steps, epochs, length = horizon.steps, horizon.epochs, length_in_steps(scheduler)
    if steps < MANY:  # too few steps to judge
        return None
    stepped = f"LRSchedule steps it after each of the {steps} optimizer steps"
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
