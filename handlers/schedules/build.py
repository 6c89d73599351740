"""What LRSchedule was given, as a torch scheduler: at once, or when the run starts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import ChainedScheduler, LRScheduler, ReduceLROnPlateau

from ...engine import Engine, EventEnum, Events, State, Trigger, check_arity
from ...engine.checks import warn
from ...engine.modules import moves
from ...engine.update import Optimizers, Update
from ..common import mostly_better_larger
from .following import warn_of_lost
from .horizon import Horizon
from .schedule import Schedule
from .scheduled import ByUpdates, Scheduled, UpdateScheduler

Given = LRScheduler | UpdateScheduler | Schedule | Sequence[Schedule]
"""What `LRSchedule` takes, and what a function of optimizer and horizon may return."""
Make = Callable[[Optimizer, Horizon], Given] | Callable[[Optimizer], Given]
"""A function of the optimizer; the horizon of the run is its argument `horizon`, if it has one."""


def as_scheduler(given: object, said: str = "LRSchedule got") -> LRScheduler | None:
    """The torch scheduler of a scheduler; None if it can only be built when the run starts."""
    if isinstance(given, LRScheduler):
        return given
    if isinstance(given, UpdateScheduler) and not isinstance(given, type):
        return ByUpdates(given)
    if pieces_of(given):
        return None
    if callable(given) and not isinstance(given, type):
        _check_call(given)
        return None
    # The repr of an optimizer takes ten lines.
    what = f"a {type(given).__name__}" if hasattr(given, "param_groups") else repr(given)
    raise TypeError(
        f"{said} {what}; it needs a torch scheduler, one with step_update() as in timm, "
        "a schedule of pieces such as warmup(500).then(cosine()), or a function that makes one of "
        "these: partial(StepLR, step_size=1), or "
        "lambda optimizer, horizon: OneCycleLR(optimizer, 0.1, horizon.steps)"
    )


def pieces_of(given: object) -> list[Schedule]:
    """The schedules of pieces: one, or one for each group; empty for anything else."""
    if isinstance(given, Schedule):
        return [given]
    if isinstance(given, list | tuple) and all(isinstance(each, Schedule) for each in given):
        return list(given)
    return []


def wants_horizon(given: Any) -> bool:
    """True for pieces, and for a function whose argument `horizon` is not given yet."""
    if pieces_of(given):
        return True
    found = inspect.signature(given).parameters.get("horizon")
    if found is None:
        return False
    by_partial = found.kind is found.KEYWORD_ONLY and found.default is not found.empty
    return not by_partial


def build(
    given: Any, optimizer: Optimizer, horizon: Horizon, when: Trigger, field: str
) -> LRScheduler:
    """Build a torch scheduler for a run that is as long as `horizon` says."""
    if not pieces_of(given):
        by_name = {"horizon": horizon} if wants_horizon(given) else {}
        given = given(optimizer, **by_name)
    if schedules := pieces_of(given):
        is_open = any(each.needs_total for each in schedules)
        total = units(when, horizon, schedules[0]) if is_open else None
        return Scheduled(optimizer, schedules, total, field)
    made = as_scheduler(given, "the function of LRSchedule made")
    if made is None:
        raise TypeError(f"the function of LRSchedule made {given!r}; it has to make a scheduler")
    return made


def check_scheduler(scheduler: LRScheduler, metric: str | None, field: str) -> None:
    """Check that scheduler, metric and field fit together."""
    is_plateau = isinstance(scheduler, ReduceLROnPlateau)
    kind = type(scheduler).__name__
    if is_plateau and metric is None:
        raise ValueError(
            "ReduceLROnPlateau needs a metric to look at: LRSchedule(..., metric='val/loss')"
        )
    is_min = isinstance(scheduler, ReduceLROnPlateau) and scheduler.mode == "min"
    if is_min and mostly_better_larger(metric or ""):
        warn(
            f"ReduceLROnPlateau lowers the rate while {metric!r} does not fall: mode='min' is "
            "torch's default. If larger is better, pass mode='max' to it"
        )
    if metric is not None and not is_plateau and not isinstance(scheduler, ByUpdates):
        raise ValueError(f"{kind} looks at no metric; leave metric= out, or use ReduceLROnPlateau")
    is_chain = isinstance(scheduler, ChainedScheduler)
    warn_of_lost(*getattr(scheduler, "_schedulers", []) if is_chain else [scheduler])
    if (moved := getattr(scheduler, "field", "lr")) != field:
        raise ValueError(
            f"LRSchedule(..., field={field!r}): this {kind} moves {moved!r}; other fields "
            "are moved by schedules of pieces, such as linear(), or by timm's schedulers"
        )


def check_whose(scheduler: LRScheduler, engine: Engine[Any, Any]) -> None:
    """Refuse a scheduler of an optimizer that is not the engine's, if the engine has one."""
    known = [each for each in engine.objects.values() if isinstance(each, Optimizer)]
    if known and not any(moves(scheduler, each) for each in known):
        raise ValueError(
            f"LRSchedule got a {type(scheduler).__name__} of an optimizer that is not among the "
            "engine's objects, so it would move no rate of this run; make it of the engine's "
            'optimizer, or name the other one: Engine(..., objects={"critic_optimizer": ...})'
        )


def check_total(total: object, given: object) -> None:
    """Check the steps of the run that a script says."""
    if type(total) is not int or total < 1:
        raise ValueError(
            f"horizon={total!r}: needs the optimizer steps of the whole run, a whole number from 1"
        )
    if isinstance(given, LRScheduler | UpdateScheduler) or not wants_horizon(given):
        raise ValueError(
            f"horizon={total!r} is for a schedule that is built when the run starts: pieces, or a "
            "function of optimizer and horizon; this one says its length itself"
        )


def optimizer_of(state: State[Any, Any], given: Optimizer | str | None) -> Optimizer:
    """The optimizer whose parameter groups the schedule moves; without a name, all of one step."""
    objects = state.engine.objects
    optimizer = objects.get(given or "optimizer") if isinstance(given, str | None) else given
    if given is None:
        made = [each.optimizer for each in state.engine.find(Update)]
        if len(made) == 1 and isinstance(made[0], Optimizers):
            return made[0]
    if not isinstance(optimizer, Optimizer):
        if isinstance(given, str) or any(isinstance(each, Optimizer) for each in objects.values()):
            known = [name for name, each in objects.items() if isinstance(each, Optimizer)]
            raise RuntimeError(
                f"LRSchedule(optimizer={given!r}): needs one of the engine's optimizers, "
                f"{', '.join(map(repr, known)) or 'of which there are none'}; each has a schedule "
                "of its own: LRSchedule(..., optimizer=<its name>, name=<its name>)"
            )
        raise RuntimeError(
            "LRSchedule does not know which optimizer's rate to move: the engine has no "
            f'objects["optimizer"], only {sorted(state.engine.objects)}; write '
            'Engine(..., objects={"model": model, "optimizer": optimizer}), or pass optimizer= to '
            "LRSchedule"
        )
    return optimizer


def each_event(when: Trigger) -> EventEnum | None:
    """The event at whose every occurrence a trigger fires; None if it is choosier."""
    clause = next(iter(when.clauses))
    return clause.event if len(when.clauses) == 1 and clause.is_always else None


def _check_call(make: Callable[..., Any]) -> None:
    """Refuse a function that `build` cannot call."""
    try:
        function = partial(make, horizon=None) if wants_horizon(make) else make
        inspect.signature(function).bind(None)
    except (TypeError, ValueError) as error:
        named = make.func if isinstance(make, partial) else make
        kind = "a partial of " if isinstance(make, partial) else ""
        raise TypeError(
            f"LRSchedule calls {kind}{getattr(named, '__name__', named)} with the optimizer, and "
            f"with the horizon of the run if it has an argument named horizon: {error}; write "
            "lambda optimizer, horizon: OneCycleLR(optimizer, 0.1, horizon.steps), or give a "
            "partial its other settings, as in partial(StepLR, step_size=1)"
        ) from None
    check_arity(function, 1, "a schedule", "the optimizer")


def units(when: Trigger, horizon: Horizon, schedule: object) -> int:
    """How many times the run will step a schedule of pieces."""
    event = each_event(when)
    if event in (None, Events.ITERATION_COMPLETED):
        raise ValueError(
            f"{schedule!r} depends on the length of the run, in steps or in epochs, and cannot "
            f"be stepped by {when!r}: give all pieces a length, as a whole number"
        )
    if event.clock == "epochs" and horizon.total is not None:
        raise ValueError(
            f"horizon={horizon.total} counts optimizer steps, and {schedule!r} is stepped by "
            f"{when!r}: leave horizon= out, and it lasts as many epochs as the run"
        )
    return horizon.epochs if event.clock == "epochs" else horizon.steps
