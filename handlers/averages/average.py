"""What all averages of weights have in common: where they lie, and how one is updated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module

from ...engine.engine import Engine
from ...engine.events import Events, Stage, Trigger
from ...engine.modules.weights import pairs_of, put, twin
from ...engine.signals import Subscription
from ...engine.state.state import State

if TYPE_CHECKING:
    from .ema import EMA
    from .swa import SWA

Fold = Callable[[Any, Any, int], None]
"""Moves averages towards weights, in place; the number is how many were averaged before."""


@dataclass
class Updates:
    """What a run remembers of an average: how many weights it is the average of."""

    count: int = 0
    has_begun: bool = False
    """True once it holds the weights with which the run began."""


def keep(handler: EMA | SWA, engine: Engine[Any, Any]) -> None:
    """Put the average among the engine's objects, and update it by the handler's trigger.

    Raises:
        ValueError: There is no such model, or the name is taken, or a handler that evaluates the
            average in the moment of an update would come before it.
    """
    kind, objects = type(handler).__name__, engine.objects
    if not isinstance(objects.get(handler.model), Module):
        modules = [name for name, each in objects.items() if isinstance(each, Module)]
        raise ValueError(
            f"{kind}(model={handler.model!r}): needs a module among the engine's objects; those "
            f"are {', '.join(map(repr, modules)) or 'none'}"
        )
    if handler.name in objects:
        raise ValueError(
            f"the engine has an object {handler.name!r} already; give this average another name: "
            f"{kind}(..., name='slow_{handler.name}')"
        )
    if early := _evaluated_before(handler, engine):
        raise ValueError(
            f"{early} evaluates {handler.name!r} in a moment in which {kind} updates it; attach "
            f"{kind} first"
        )
    objects[handler.name] = twin(objects[handler.model])
    engine.on(Events.STARTED, stage=Stage.MEASURE)(handler.begin)
    engine.on(handler.when, stage=Stage.MEASURE)(handler.update)


def begin(handler: EMA | SWA, state: State[Any, Any]) -> None:
    """In a new run, let the average be the weights."""
    updates, objects = state.recall(handler, Updates), state.engine.objects
    if not updates.has_begun:
        put(objects[handler.name], objects[handler.model])
        updates.has_begun = True


def update(handler: EMA | SWA, state: State[Any, Any], fold: Fold) -> None:
    """Take the weights into the average; the first ones are copied."""
    updates, objects = state.recall(handler, Updates), state.engine.objects
    average, model = objects[handler.name], objects[handler.model]
    if updates.count == 0:
        put(average, model)
    else:
        lists = state.recall(
            handler, lambda: Lists.of(average, model, handler.buffers), saved=False
        )
        lists.update(fold, updates.count)
    updates.count += 1


@dataclass(frozen=True)
class Lists:
    """The tensors of an average and of its model, side by side, for functions over many at once."""

    averaged: list[tuple[list[Tensor], list[Tensor]]]
    """For each type and device: those of the average, those of the model."""
    copied: tuple[list[Tensor], list[Tensor]]

    @classmethod
    def of(cls, average: Module, model: Module, buffers: bool) -> Lists:
        """Sort them: integers are copied, and so are buffers that are not to be averaged."""
        groups: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
        copied: tuple[list[Tensor], list[Tensor]] = ([], [])
        parameters = {id(parameter) for parameter in average.parameters()}
        for mine, its in pairs_of(average, model).values():
            group, is_float = copied, mine.is_floating_point() or mine.is_complex()
            if is_float and (id(mine) in parameters or (buffers and _is_finite(its))):
                key = (mine.device, mine.dtype, its.dtype)
                group = groups.setdefault(key, ([], []))
            group[0].append(mine)
            group[1].append(its)
        return cls(list(groups.values()), copied)

    @torch.no_grad()
    def update(self, fold: Fold, count: int) -> None:
        """Fold the model's into the average's."""
        for averages, weights in self.averaged:
            kind = averages[0].dtype
            same = weights[0].dtype == kind
            fold(averages, weights if same else [each.to(kind) for each in weights], count)
        if self.copied[0]:
            torch._foreach_copy_(*self.copied)  # pyright: ignore


def _is_finite(buffer: Tensor) -> bool:
    """False for such as a mask of minus infinity, whose average with itself is no number."""
    return bool(torch.isfinite(buffer).all())


def _evaluated_before(handler: EMA | SWA, engine: Engine[Any, Any]) -> str | None:
    """Who would evaluate the average in a moment before it is updated there, if anybody."""
    for event in Trigger.of(handler.when).events | {Events.STARTED}:
        for each in engine.signal(event).receivers_for(None):
            if isinstance(each, Subscription) and each.stage is Stage.MEASURE:
                owner = getattr(each.function, "__self__", None)
                weights = getattr(owner, "weights", None)
                used = weights.values() if isinstance(weights, Mapping) else [weights]
                if handler.name in used:
                    return engine.name_of(owner)
    return None
