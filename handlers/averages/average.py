"""Averages of weights: where they lie, and how one is updated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.parameter import is_lazy

from ...engine import Engine, EventEnum, Events, Stage, State, Subscription, Trigger, few
from ...engine.checks import warn
from ...engine.modules import (
    ModuleTree,
    Place,
    copy_each,
    fits,
    fully_sharded,
    is_spread,
    local,
    locals_of,
    pairs_of,
    places_of,
    put,
    renewed,
    reshard,
    set_at,
    tensor_at,
    twin,
    unwrap,
)
from ..common import module_of, refuse_taken

SHAPE = attrgetter("shape")


@dataclass
class Updates:
    """What a run remembers of an average."""

    count: int = 0
    """The number of updates of the average; the first one copies the weights."""
    has_begun: bool = False
    """True once it holds the weights with which the run began."""


class AverageOfWeights:
    """The base of all averages; each class adds weights to its average by `fold`."""

    when: EventEnum | Trigger
    buffers: bool
    object: str
    name: str

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Put the average among the engine's objects, and update it by the trigger.

        Raises:
            ValueError: The engine has no such model, the name is taken, or a handler that evaluates
                the average in the moment of an update would come before it.
        """
        kind = type(self).__name__
        model = module_of(engine.objects, self.object, kind)
        refuse_taken(engine.objects, self.name, kind, f"slow_{self.name}")
        if early := self._evaluated_before(engine):
            raise ValueError(
                f"{early} evaluates {self.name!r} in a moment in which {kind} updates it; attach "
                f"{kind} first"
            )
        engine.objects[self.name] = twin(model)
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.begin)
        engine.on(self.when, stage=Stage.MEASURE)(self.update)

    def begin(self, state: State[Any, Any]) -> None:
        """In a new run, copy the weights into the average."""
        updates, objects = state.recall(self, Updates), state.engine.objects
        if not updates.has_begun:
            self._copy(objects)
            updates.has_begun = True

    def update(self, state: State[Any, Any]) -> None:
        """Update the average with the weights; the first update copies them."""
        updates, objects = state.recall(self, Updates), state.engine.objects
        if updates.count == 0:
            self._copy(objects)
        else:
            pairs = state.recall(self, Pairs, saved=False)
            reshard(pairs.managed)
            with torch.no_grad():
                if not pairs.are_current():
                    pairs.look(self, objects)
                for averages, weights in map(_shards, pairs.averaged):
                    kind = averages[0].dtype
                    same = weights[0].dtype == kind
                    new = weights if same else [each.to(kind) for each in weights]
                    self.fold(averages, new, updates.count)
                for copies, originals in map(_shards, pairs.copied):
                    copy_each(copies, originals)
        updates.count += 1

    def _copy(self, objects: dict[str, Any]) -> None:
        reshard(fully_sharded(objects.values()))
        objects[self.name] = put(objects[self.name], objects[self.object])

    def fold(self, averages: list[Tensor], weights: list[Tensor], count: int) -> None:
        """Move averages of `count` weights towards further weights, in place."""
        raise NotImplementedError

    def _evaluated_before(self, engine: Engine[Any, Any]) -> str | None:
        """The name of an attached handler that would evaluate the average before its update."""
        for event in Trigger.of(self.when).events | {Events.STARTED}:
            for each in engine.signal(event).receivers_for(None):
                if isinstance(each, Subscription) and each.stage is Stage.MEASURE:
                    owner = getattr(each.function, "__self__", None)
                    weights = getattr(owner, "weights", None)
                    used = weights.values() if isinstance(weights, Mapping) else [weights]
                    if self.name in used:
                        return engine.name_of(owner)
        return None


Lists = tuple[list[Tensor], list[Tensor]]
"""The average's tensors and the model's tensors: all sharded, or all whole."""


@dataclass
class Pairs:
    """The tensors of an average and of its model, in lists for functions over many at once."""

    averaged: list[Lists] = field(default_factory=list)
    """One for each type and device."""
    copied: list[Lists] = field(default_factory=list)
    managed: list[Any] = field(default_factory=list)
    """The modules that hold whole weights for a while, by FSDP2."""
    parts: ModuleTree | None = None
    """The modules of both; None while a weight has no shape, as in a lazy module."""
    places: tuple[list[dict[str, Any]], list[str]] = ([], [])
    """The dicts that hold the tensors, and their names there."""
    tensors: list[Any] = field(default_factory=list)
    """What was in these places at the last look."""
    shaped: list[Any] = field(default_factory=list)
    """Those of them that are tensors; an observer resizes its own in place."""
    shapes: list[Any] = field(default_factory=list)
    finite: dict[str, bool] = field(default_factory=dict)
    """Which buffers have an average, unlike a mask of minus infinity; the host waits to know."""
    has_warned: bool = False

    def are_current(self) -> bool:
        """True if both have the tensors of the last look; without a call for each tensor."""
        return (
            self.parts is not None
            and all(map(is_, map(dict.get, *self.places), self.tensors))
            and [*map(SHAPE, self.shaped)] == self.shapes
            and self.parts.are_same()
        )

    def look(self, handler: AverageOfWeights, objects: dict[str, Any]) -> None:
        """Find the tensors; what the model has in another shape begins anew in the average."""
        self.managed = fully_sharded(objects.values())
        reshard(self.managed)
        model = unwrap(objects[handler.object])
        average = objects[handler.name] = renewed(objects[handler.name], model)
        pairs = pairs_of(average, model)
        begun = [name for name, each in pairs.items() if self._begins(handler, name, *each)]
        if begun and not self.has_warned:
            self.has_warned = True
            warn(
                f"{type(handler).__name__}: parameters have other shapes than in its average, "
                f"where they begin anew with their present values: {few(begun)}. So it is at each "
                "such change; this is told once"
            )
        self._sort(handler, pairs)
        # All of them, also tied ones: they may not be tied for ever.
        places = [*places_of(average).values(), *places_of(model).values()]
        self.places = [holder for holder, _ in places], [name for _, name in places]
        self.tensors = [*map(dict.get, *self.places)]
        self.shaped = [each for each in self.tensors if each is not None and not is_lazy(each)]
        self.shapes = [*map(SHAPE, self.shaped)]
        is_lazy_yet = any(map(is_lazy, self.tensors))
        self.parts = None if is_lazy_yet else ModuleTree([average, model])

    def _begins(self, handler: Any, name: str, mine: Place, its: Place) -> bool:
        """Copy what has another shape; True for a parameter."""
        old, value = tensor_at(mine), tensor_at(its)
        if fits(old, value):
            return False
        set_at(mine, value)
        self.finite.pop(name, None)
        return isinstance(value, Parameter) and not is_lazy(value) and old is not None

    def _sort(self, handler: AverageOfWeights, pairs: Mapping[str, tuple[Place, Place]]) -> None:
        """Sort the tensors: integers are copied, and so are buffers unless `buffers` is True."""
        averaged: dict[tuple[Any, ...], Lists] = {}
        copied: dict[tuple[Any, ...], Lists] = {}
        for name, (mine, its) in ((n, map(tensor_at, pair)) for n, pair in pairs.items()):
            if its is None or is_lazy(its):
                continue
            is_averaged = self._is_averaged(handler, name, mine, its)
            kinds = (mine.device, mine.dtype, its.dtype) if is_averaged else ()
            groups = averaged if is_averaged else copied
            group = groups.setdefault((is_spread(mine), *kinds), ([], []))
            group[0].append(mine)
            group[1].append(its)
        self.averaged, self.copied = [*averaged.values()], [*copied.values()]

    def _is_averaged(self, handler: AverageOfWeights, name: str, mine: Any, its: Any) -> bool:
        is_dense = mine.layout is torch.strided
        if not (is_dense and (mine.is_floating_point() or mine.is_complex())):
            return False
        if isinstance(mine, Parameter):
            return True
        if handler.buffers and name not in self.finite:
            self.finite[name] = bool(local(its).isfinite().all())
        return handler.buffers and self.finite[name]


def _shards(lists: Lists) -> Lists:
    """This rank's shards, averaged without communication."""
    # Anew each time, since FSDP2 may replace the memory of a shard.
    if not is_spread(lists[0][0]):
        return lists
    return list(locals_of(lists[0])), list(locals_of(lists[1]))
