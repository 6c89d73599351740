"""What can be set in a run: its limits, its windows and its learning rates."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ....engine import State, advice, few
from ....engine.update import Update
from ...common import read, write
from ...schedules import Scheduled

LIMITS = ("max_epochs", "max_iterations", "max_steps")


@dataclass(frozen=True)
class Settable:
    """A value of a run that can be set, and the numbers that it takes."""

    write: Callable[[Any], object]
    now: float | None = None
    kind: type[int] | type[float] | None = None
    """None for what is only asked for, such as a save."""
    least: int = 0
    why_not: str = ""
    """Why it cannot be set, and what to do instead; empty if it can."""

    def takes(self, value: Any) -> bool:
        """True for a number that it takes."""
        return type(value) in (int, self.kind) and self.least <= value <= sys.float_info.max


def refuse_wrong(values: Mapping[str, Any], known: Mapping[str, Settable]) -> None:
    """Refuse names that a run does not have, and values that they do not take."""
    for name, value in values.items():
        if name not in known:
            meant = advice(name, known, {}) or f"; it has {few(known, most=20)}"
            raise ValueError(f"this run has no {name!r} to set{meant}")
        own = known[name]
        if own.why_not:
            raise ValueError(f"{name} cannot be set: {own.why_not}")
        if own.kind is None and value is not None:
            raise ValueError(f"{name}={value}: takes no value; write {name} alone")
        if own.kind is not None and not own.takes(value):
            given = name if value is None else f"{name}={value}"
            needs = f"a {'whole ' * (own.kind is int)}number from {own.least}"
            raise ValueError(f"{given}: needs {needs}; it is {own.now} now")


def settings_in(state: State[Any, Any], iteration: int) -> dict[str, Settable]:
    """By name: all that can be set in this run after an iteration."""
    by = "camshaft set"
    found = {
        "save": Settable(lambda _: state.save(by)),
        "stop": Settable(lambda _: state.interrupt(by)),
    }
    leasts = (max(1, state.epoch), iteration + 1, state.step + 1)
    for name, least in zip(LIMITS, leasts, strict=True):
        found[name] = Settable(partial(setattr, state, name), getattr(state, name), int, least)
    for each in state.engine.find(Update):
        to = partial(setattr, each, "accumulate")
        name = state.engine.name_of(each)
        found[f"{name}.accumulate"] = Settable(to, each.accumulate, int, least=1)
    for name, each in state.engine.objects.items():
        if isinstance(each, Optimizer):
            found.update(_rates(name, each, state.engine.objects))
    return found


def _rates(
    name: str, optimizer: Optimizer, objects: Mapping[str, Any]
) -> Iterator[tuple[str, Settable]]:
    """The rate of each parameter group, or the one that a schedule of pieces multiplies."""
    groups = optimizer.param_groups
    for number, group in enumerate(groups):
        place = name if len(groups) == 1 else f"{name}[{number}]"
        why = ""
        for schedule, scheduler, at in _schedules_of(group, objects):
            why = f"the schedule {schedule!r} sets it at each step; "
            if isinstance(scheduler, Scheduled):
                why += f"set {place}.initial_lr, which the schedule multiplies"
                to = partial(_rebase, scheduler, at)
                yield f"{place}.initial_lr", Settable(to, float(group["initial_lr"]), float)
            else:
                why += "a schedule of pieces, such as warmup(500).then(cosine()), can be steered"
        if "lr" in group:
            to = partial(write, group, "lr")
            yield f"{place}.lr", Settable(to, float(read(group, "lr")), float, why_not=why)


def _schedules_of(
    group: dict[str, Any], objects: Mapping[str, Any]
) -> Iterator[tuple[str, LRScheduler, int]]:
    """The schedules that set the rate of a group: their names, and its number in them."""
    for name, each in objects.items():
        if not isinstance(each, LRScheduler) or isinstance(each, ReduceLROnPlateau):
            continue  # that one goes on from the rate that it finds
        if getattr(each, "field", "lr") == "lr":
            own = getattr(getattr(each, "optimizer", None), "param_groups", ())
            yield from ((name, each, at) for at, one in enumerate(own) if one is group)


def _rebase(scheduler: Scheduled, number: int, value: float) -> None:
    """Give a group another full rate: the next step has its part of it."""
    base, group = scheduler.bases[number], scheduler.optimizer.param_groups[number]
    new = base.new_full(base.shape, value) if isinstance(base, Tensor) else value
    scheduler.bases[number] = group["initial_lr"] = new
    write(group, "lr", scheduler.get_lr()[number])
