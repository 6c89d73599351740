"""Changed settings: schedules are stepped anew to where the run is, other values are set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ...common import DRIVEN, advance, fields_of
from .compare import Change, is_of


def schedules_to_replay(objects: Mapping[str, Any], changed: Iterable[str]) -> list[str]:
    """The schedules whose course these changed settings or new objects change.

    `ReduceLROnPlateau` is never replayed: it follows a metric.

    Raises:
        ValueError: A schedule to replay moves the same values as another schedule.
    """
    changed = set(changed)
    found = []
    for name, scheduler in _schedules(objects).items():
        of_optimizer = [key for key, each in objects.items() if each is scheduler.optimizer]
        if isinstance(scheduler, ReduceLROnPlateau):
            continue
        if not any(is_of(name, key) or _moves(scheduler, key, of_optimizer) for key in changed):
            continue
        sharing = [
            other
            for other, each in _schedules(objects).items()
            if each.optimizer is scheduler.optimizer
            and not {*fields_of(each)}.isdisjoint(fields_of(scheduler))
        ]
        if len(sharing) > 1:
            raise ValueError(
                f"{' and '.join(map(repr, sharing))} move the rates of one optimizer in an unknown "
                "order, so an override cannot change their settings; combine them into one, such "
                "as SequentialLR or ChainedScheduler"
            )
        found.append(name)
    return found


def replay(scheduler: LRScheduler, saved: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Step a new schedule to where the saved one was; return the values it set in each group.

    A schedule that the checkpoint lacks, and a `ReduceLROnPlateau`, stays at its start.

    Raises:
        ValueError: The schedule is shorter than the run so far.
    """
    if saved is not None:
        advance(scheduler, saved)
    fields = fields_of(scheduler)
    return [_moved(group, fields) for group in scheduler.optimizer.param_groups]


def take_rates(
    optimizer: Optimizer, saved: Sequence[Mapping[str, Any]], kept: Iterable[object]
) -> None:
    """Give an optimizer that begins anew the saved rates of the schedules that are loaded.

    Raises:
        ValueError: The optimizer has another number of groups.
    """
    schedules = [e for e in kept if isinstance(e, LRScheduler) and e.optimizer is optimizer]
    for fields in map(fields_of, schedules):
        for group, saved_group in zip(optimizer.param_groups, saved, strict=True):
            group.update(_moved(saved_group, fields))


def put_settings(objects: Mapping[str, Any], changes: Iterable[Change]) -> None:
    """Set the changed settings of optimizers and of `ReduceLROnPlateau`."""
    values = {change.name: change.new for change in changes}
    for name, each in objects.items():
        own = {key.removeprefix(f"{name}."): values[key] for key in values if is_of(name, key)}
        own.pop("class", None)
        if isinstance(each, ReduceLROnPlateau):
            each.load_state_dict(deepcopy(own))
        elif isinstance(each, Optimizer):
            for number, group in enumerate(each.param_groups):
                prefix = "" if len(each.param_groups) == 1 else f"{number}."
                mine = {key.removeprefix(prefix): own[key] for key in own if key.startswith(prefix)}
                mine |= {f"initial_{k}": mine[k] for k in mine if f"initial_{k}" in group}
                group.update(deepcopy(mine))


def _moved(group: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """The values of a group that a schedule of these fields sets."""
    return {
        key: deepcopy(value)
        for key, value in group.items()
        if key.removeprefix("initial_").partition(".")[0] in fields
    }


def schedules_of(objects: Mapping[str, Any], optimizer: Optimizer) -> list[str]:
    """The names of the schedules that move an optimizer's values."""
    return [name for name, each in _schedules(objects).items() if each.optimizer is optimizer]


def _schedules(objects: Mapping[str, Any]) -> dict[str, LRScheduler]:
    return {name: each for name, each in objects.items() if isinstance(each, LRScheduler)}


def _moves(scheduler: LRScheduler, key: str, optimizers: list[str]) -> bool:
    """True for a setting of the schedule's optimizer that the schedule starts from."""
    fields = fields_of(scheduler)
    if fields == DRIVEN:
        fields = ("lr", "max_lr", "min_lr", "swa_lr", "base_momentum", "max_momentum")
    return key.rpartition(".")[2] in fields and any(is_of(name, key) for name in optimizers)
