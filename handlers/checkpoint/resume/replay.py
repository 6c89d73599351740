"""Changed settings taken over by optimizers and schedules that go on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ...common.schedulers import DRIVEN, advance, fields_of
from .settings import Change, is_of


def schedules_to_replay(objects: Mapping[str, Any], changed: Iterable[str]) -> list[str]:
    """The schedules whose course is another one by these changed settings or new objects.

    `ReduceLROnPlateau` has no course of its own: it goes by the metric.

    Raises:
        ValueError: Such a schedule shares its optimizer with another one.
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
                f"{' and '.join(map(repr, sharing))} move the rates of one optimizer, and in which "
                "order they did is not known, so no override can change their settings; make one "
                "schedule of them, such as SequentialLR or ChainedScheduler"
            )
        found.append(name)
    return found


def replay(scheduler: LRScheduler, saved: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Step a schedule that was just made to where the saved one was; what it made of the groups.

    A schedule that the saved run did not have, or a plateau's, is no place to go to: it begins.

    Raises:
        ValueError: The schedule is not that long.
    """
    if saved is not None:
        advance(scheduler, saved)
    fields = fields_of(scheduler)
    return [
        {
            key: deepcopy(value)
            for key, value in group.items()
            if key.removeprefix("initial_").partition(".")[0] in fields
        }
        for group in scheduler.optimizer.param_groups
    ]


def put_settings(objects: Mapping[str, Any], changes: Iterable[Change]) -> None:
    """Set what was changed, in optimizers and in schedules that go by a metric."""
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


def _schedules(objects: Mapping[str, Any]) -> dict[str, LRScheduler]:
    return {name: each for name, each in objects.items() if isinstance(each, LRScheduler)}


def _moves(scheduler: LRScheduler, key: str, optimizers: list[str]) -> bool:
    """True if the setting is one of its optimizer's that the schedule starts from."""
    fields = fields_of(scheduler)
    if fields == DRIVEN:
        fields = ("lr", "max_lr", "min_lr", "swa_lr", "base_momentum", "max_momentum")
    return key.rpartition(".")[2] in fields and any(is_of(name, key) for name in optimizers)
