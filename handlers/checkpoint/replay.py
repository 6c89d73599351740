"""Changed settings taken over by optimizers and schedules that go on."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from .settings import Change, is_of

DRIVEN = ("lr", "initial_lr", "momentum", "betas")
"""What schedules move in a group of parameters."""


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
        if not any(is_of(name, key) or _is_rate(key, of_optimizer) for key in changed):
            continue
        sharing = [
            other
            for other, each in _schedules(objects).items()
            if each.optimizer is scheduler.optimizer
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
    steps = 0 if saved is None or "num_bad_epochs" in saved else _steps(saved)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that no optimizer's step came before
        for _ in range(steps - _steps(scheduler.state_dict())):
            scheduler.step()
    groups = scheduler.optimizer.param_groups
    return [{key: deepcopy(group[key]) for key in DRIVEN if key in group} for group in groups]


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
                if "initial_lr" in group and "lr" in mine:
                    mine["initial_lr"] = mine["lr"]
                group.update(deepcopy(mine))


def _schedules(objects: Mapping[str, Any]) -> dict[str, LRScheduler]:
    return {name: each for name, each in objects.items() if isinstance(each, LRScheduler)}


def _is_rate(key: str, optimizers: list[str]) -> bool:
    rates = ("lr", "max_lr", "min_lr", "swa_lr", "base_momentum", "max_momentum")
    return key.rpartition(".")[2] in rates and any(is_of(name, key) for name in optimizers)


def _steps(saved: Mapping[str, Any]) -> int:
    """How often it was stepped; a chain of schedules knows it by its links."""
    return int(saved["last_epoch"] if "last_epoch" in saved else _steps(saved["_schedulers"][0]))
