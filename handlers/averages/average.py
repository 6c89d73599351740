"""Averages of weights: where they lie, and how one is updated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...engine import Engine, EventEnum, Events, Stage, State, Subscription, Trigger
from ...engine.modules import (
    copy_each,
    fully_sharded,
    is_spread,
    local,
    locals_of,
    pairs_of,
    put,
    reshard,
    twin,
)
from ..common import module_of, refuse_taken


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
            pairs = state.recall(self, lambda: Pairs.of(self, objects), saved=False)
            reshard(pairs.managed)
            with torch.no_grad():
                for averages, weights in map(_shards, pairs.averaged):
                    kind = averages[0].dtype
                    same = weights[0].dtype == kind
                    new = weights if same else [each.to(kind) for each in weights]
                    self.fold(averages, new, updates.count)
                for copies, originals in map(_shards, pairs.copied):
                    copy_each(copies, originals)
        updates.count += 1

    def _copy(self, objects: Mapping[str, Any]) -> None:
        reshard(fully_sharded(objects.values()))
        put(objects[self.name], objects[self.object])

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


@dataclass(frozen=True)
class Pairs:
    """The tensors of an average and of its model, in lists for functions over many at once."""

    averaged: list[Lists]
    """One for each type and device."""
    copied: list[Lists]
    managed: list[Any]
    """The modules that hold whole weights for a while, by FSDP2."""

    @classmethod
    def of(cls, handler: AverageOfWeights, objects: Mapping[str, Any]) -> Pairs:
        """Sort the tensors: integers are copied, and so are buffers unless `buffers` is True."""
        managed = fully_sharded(objects.values())
        reshard(managed)
        average, model = objects[handler.name], objects[handler.object]
        averaged: dict[tuple[Any, ...], Lists] = {}
        copied: dict[tuple[Any, ...], Lists] = {}
        parameters = {id(parameter) for parameter in average.parameters()}
        for mine, its in pairs_of(average, model).values():
            is_float = mine.is_floating_point() or mine.is_complex()
            # A mask of minus infinity has no average.
            is_averaged = is_float and (
                id(mine) in parameters or (handler.buffers and bool(local(its).isfinite().all()))
            )
            kinds = (mine.device, mine.dtype, its.dtype) if is_averaged else ()
            groups = averaged if is_averaged else copied
            group = groups.setdefault((is_spread(mine), *kinds), ([], []))
            group[0].append(mine)
            group[1].append(its)
        return cls(list(averaged.values()), list(copied.values()), managed)


def _shards(lists: Lists) -> Lists:
    """This rank's shards, averaged without communication."""
    # Anew each time, since FSDP2 may replace the memory of a shard.
    if not is_spread(lists[0][0]):
        return lists
    return list(locals_of(lists[0])), list(locals_of(lists[1]))
