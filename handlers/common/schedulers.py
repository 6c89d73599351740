"""Torch's schedulers: how far they are, what they move, and how they get to another place."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

DRIVEN = ("lr", "momentum", "betas")
"""What torch's schedules move in a group of parameters."""


def steps_of(saved: Mapping[str, Any]) -> int:
    """How often it was stepped; a chain of schedules knows it by its links."""
    return int(saved["last_epoch"] if "last_epoch" in saved else steps_of(saved["_schedulers"][0]))


def advance(scheduler: LRScheduler, saved: Mapping[str, Any]) -> None:
    """Step a schedule that was just made to where the saved one was.

    A plateau's has no place to go to: it goes by a metric.

    Raises:
        ValueError: The schedule is not that long.
    """
    if "num_bad_epochs" in saved or isinstance(scheduler, ReduceLROnPlateau):
        return
    if (go_to := getattr(scheduler, "go_to", None)) is not None:  # it knows its own way
        go_to(saved)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that no optimizer's step came before
        for _ in range(steps_of(saved) - steps_of(scheduler.state_dict())):
            scheduler.step()


def fields_of(scheduler: LRScheduler) -> tuple[str, ...]:
    """The fields of the parameter groups that it moves, as its attribute `field` says."""
    field = getattr(scheduler, "field", "lr")
    return DRIVEN if field == "lr" else (field.partition(".")[0],)


def given(group: dict[str, Any]) -> dict[str, Any]:
    """What a parameter group was set to, before schedules moved it."""
    values = dict(group)
    for key, value in group.items():
        if key.startswith("initial_"):
            write(values, key.removeprefix("initial_"), deepcopy(value))
    return {key: values[key] for key in values if not key.startswith("initial_")}


def read(group: dict[str, Any], field: str) -> Any:
    """A field of a parameter group, or what is at a place in it: `"betas.0"`."""
    name, _, place = field.partition(".")
    if name not in group:
        known = ", ".join(repr(key) for key in group if key != "params")
        raise ValueError(f"field={field!r}: the parameter groups have none; they have {known}")
    value = group[name]
    if isinstance(value, tuple | list):
        if not place.isdecimal() or int(place) >= len(value):
            raise ValueError(f"field={field!r}: is {value!r}; say which of it: {name + '.0'!r}")
        return value[int(place)]
    if place or isinstance(value, bool) or not isinstance(value, int | float | Tensor):
        raise ValueError(f"field={field!r}: is {value!r}; it needs to be a number")
    return value


def write(group: dict[str, Any], field: str, value: Any) -> None:
    """Set what `read` reads."""
    name, _, place = field.partition(".")
    if place:
        values = list(group[name])
        values[int(place)] = value
        value = type(group[name])(values)
    elif isinstance(group.get(name), Tensor):
        group[name].fill_(value)
        return
    group[name] = value
