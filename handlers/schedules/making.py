"""Schedulers made when a run starts, of what is known by then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ...engine.events import Events, Trigger
from ...engine.signals import check_arity
from ...engine.state import State
from ...engine.update.update import Update
from ..common.schedulers import write
from .by_updates import ByUpdates, UpdateScheduler
from .horizon import Horizon, horizon_of
from .schedule import Schedule
from .scheduled import Scheduled

Made = LRScheduler | UpdateScheduler | Schedule | Sequence[Schedule]
"""What a schedule can be, ready-made or returned by a function of optimizer and horizon."""
Make = Callable[[Optimizer, Horizon], Made]


def ready(given: object, said: str = "LRSchedule got") -> LRScheduler | None:
    """The torch scheduler that something is; None if it has to be made yet.

    Raises:
        TypeError: It is nothing that can be stepped.
    """
    if isinstance(given, LRScheduler):
        return given
    if isinstance(given, UpdateScheduler) and not isinstance(given, type):
        return ByUpdates(given)
    if pieces(given):
        return None
    if callable(given) and not isinstance(given, type):
        check_arity(given, 2, "a schedule", "the optimizer and the horizon")
        return None
    raise TypeError(
        f"{said} {given!r}; it needs a torch scheduler, one with step_update() as in timm, "
        "a schedule of pieces such as warmup(500).then(cosine()), or a function that makes one of "
        "these: lambda optimizer, horizon: OneCycleLR(optimizer, 0.1, horizon.steps)"
    )


def pieces(given: object) -> list[Schedule]:
    """The schedules of pieces that something is: one, or one for each group; none if it is none."""
    if isinstance(given, Schedule):
        return [given]
    if isinstance(given, list | tuple) and all(isinstance(each, Schedule) for each in given):
        return list(given)
    return []


def make(
    given: Any, optimizer: Optimizer, horizon: Horizon, when: Trigger, field: str
) -> LRScheduler:
    """Make a torch scheduler for a run that is as long as `horizon` says.

    Raises:
        TypeError: The function made nothing that can be stepped.
        ValueError: What it needs to know of the run cannot be known.
    """
    if not pieces(given):
        given = given(optimizer, horizon)
    if not (schedules := pieces(given)):
        made = ready(given, "the function of LRSchedule made")
        if made is None:
            raise TypeError(
                f"the function of LRSchedule made {given!r}; it has to make a scheduler"
            )
        return made
    total = None
    if any(each.needs_total for each in schedules):
        total = _units(when, horizon, schedules)
    return Scheduled(optimizer, schedules, total, field)


def check(scheduler: LRScheduler, monitor: str | None, field: str) -> None:
    """Refuse a plateau without a metric, a metric without one, a field that none moves.

    Raises:
        ValueError: It is one of these.
    """
    is_plateau = isinstance(scheduler, ReduceLROnPlateau)
    kind = type(scheduler).__name__
    if is_plateau and monitor is None:
        raise ValueError(
            "ReduceLROnPlateau needs a metric to look at: LRSchedule(..., monitor='val/loss')"
        )
    if monitor is not None and not is_plateau and not isinstance(scheduler, ByUpdates):
        raise ValueError(f"{kind} looks at no metric; leave monitor= out, or use ReduceLROnPlateau")
    if (moved := getattr(scheduler, "field", "lr")) != field:
        raise ValueError(
            f"LRSchedule(..., field={field!r}): this {kind} moves {moved!r}; other fields "
            "are moved by schedules of pieces, such as linear(), or by timm's schedulers"
        )


def optimizer_of(state: State[Any, Any], given: Optimizer | None) -> Optimizer:
    """The optimizer whose groups are moved.

    Raises:
        RuntimeError: None is given, and the engine has none of this name.
    """
    optimizer = given or state.engine.objects.get("optimizer")
    if not isinstance(optimizer, Optimizer):
        raise RuntimeError(
            "LRSchedule does not know whose rate it is to move: the engine has no "
            f'objects["optimizer"], only {sorted(state.engine.objects)}; pass optimizer= to '
            "LRSchedule"
        )
    return optimizer


def look_ahead(state: State[Any, Any], optimizer: Optimizer, when: Trigger) -> Horizon:
    """The horizon of the run in steps of this optimizer.

    Raises:
        ValueError: The schedule would be stepped by the clock of another optimizer.
    """
    for update in state.engine.handlers.values():
        if not isinstance(update, Update) or update.optimizer is not optimizer:
            continue
        if Events.STEP_COMPLETED in when.events and update.event is not Events.STEP_COMPLETED:
            raise ValueError(
                f"the steps of this optimizer are announced by {update.event!r}, and the schedule "
                f"goes by {when!r}: pass LRSchedule(..., when={update.event!r})"
            )
    return horizon_of(state, optimizer)


def restore(optimizer: Optimizer, field: str) -> None:
    """Put back what the groups were given, before a schedule moved them."""
    for group in optimizer.param_groups:
        if f"initial_{field}" in group:
            write(group, field, group[f"initial_{field}"])


def _units(when: Trigger, horizon: Horizon, schedules: list[Schedule]) -> int:
    """How often a schedule of pieces is going to be stepped."""
    clause = next(iter(when.clauses))
    if len(when.clauses) > 1 or not clause.is_always or clause.event is Events.ITERATION_COMPLETED:
        raise ValueError(
            f"{schedules[0]!r} depends on the length of the run, in steps or in epochs, and cannot "
            f"be stepped by {when!r}: give all pieces a length, as a whole number"
        )
    return horizon.epochs if clause.event.clock == "epochs" else horizon.steps
