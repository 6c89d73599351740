"""Torch's schedulers: their progress, the fields that they move, and those fields in a group."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ...engine.update import Optimizers

DRIVEN = ("lr", "momentum", "betas")
"""The fields of a parameter group that torch's schedulers move."""


def steps_of(saved: Mapping[str, Any]) -> int:
    """The number of steps in a saved scheduler; a chained one has it in its parts."""
    return int(saved["last_epoch"] if "last_epoch" in saved else steps_of(saved["_schedulers"][0]))


def advance(scheduler: LRScheduler, saved: Mapping[str, Any]) -> None:
    """Step a new scheduler to the progress of a saved one.

    ReduceLROnPlateau stays at its beginning, since its rates depend on a metric.

    Raises:
        ValueError: The new schedule is shorter.
    """
    if "num_bad_epochs" in saved or isinstance(scheduler, ReduceLROnPlateau):
        return
    if (go_to := getattr(scheduler, "go_to", None)) is not None:
        go_to(saved)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch warns if no optimizer step came before
        for _ in range(steps_of(saved) - steps_of(scheduler.state_dict())):
            scheduler.step()


def fields_of(scheduler: LRScheduler) -> tuple[str, ...]:
    """The fields of the parameter groups that a scheduler moves, by its attribute `field`."""
    field = getattr(scheduler, "field", "lr")
    return DRIVEN if field == "lr" else (field.partition(".")[0],)


def given(group: dict[str, Any]) -> dict[str, Any]:
    """The values of a parameter group in the script, before a schedule moved them."""
    values = {
        key: value.clone() if isinstance(value, Tensor) else value for key, value in group.items()
    }
    for key, value in group.items():
        if key.startswith("initial_"):
            write(values, key.removeprefix("initial_"), deepcopy(value))
    return {key: values[key] for key in values if not key.startswith("initial_")}


def read(group: dict[str, Any], field: str) -> Any:
    """A field of a parameter group, or an element of it, such as `"betas.0"`.

    A tensor is copied, since `write` changes it in place.
    """
    name, _, place = field.partition(".")
    if name not in group:
        known = ", ".join(repr(key) for key in group if key != "params")
        raise ValueError(f"field={field!r}: the parameter groups only have {known}")
    value = group[name]
    if isinstance(value, tuple | list):
        if not place.isdecimal() or int(place) >= len(value):
            raise ValueError(f"field={field!r} is {value!r}: choose one, as in {name + '.0'!r}")
        return value[int(place)]
    if place or isinstance(value, bool) or not isinstance(value, int | float | Tensor):
        raise ValueError(f"field={field!r} is {value!r}; needs a field that is a number")
    return value.clone() if isinstance(value, Tensor) else value


def group_values(optimizer: Optimizer, field: str, metric: str) -> dict[str, Any]:
    """A field of each parameter group: as `metric`, or by the groups' names or numbers.

    Optimizers of one step have their names in it, as in `"lr/muon"` or `"lr/adamw/0"`.
    """
    values = dict[str, Any]()
    if isinstance(optimizer, Optimizers):
        for name, each in optimizer.named.items():
            values |= group_values(each, field, f"{metric}/{name}")
        return values
    groups = optimizer.param_groups
    if len(groups) == 1:
        return {metric: read(groups[0], field)}
    return {
        f"{metric}/{group.get('name', number)}": read(group, field)
        for number, group in enumerate(groups)
    }


def write(group: dict[str, Any], field: str, value: Any) -> None:
    """Set a field of a parameter group, or an element of it."""
    name, _, place = field.partition(".")
    if place:
        values = list(group[name])
        values[int(place)] = value
        value = type(group[name])(values)
    elif isinstance(group.get(name), Tensor):
        group[name].fill_(value)
        return
    group[name] = value
