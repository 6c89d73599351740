"""Norms of weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn import Module

from ...engine.engine import Engine
from ...engine.events import EventEnum, Events, Stage, Trigger
from ...engine.state.state import State


@dataclass(frozen=True, eq=False)
class WeightNorms:
    """Measure the Euclidean norm of a model's weights, all together or of each parameter too.

    The metrics are `"weight_norm"`, and `"weight_norm/<parameter>"` with `each=True`. They stay on
    their device; between two measurements it costs nothing.

    Args:
        each: True to have the norm of each parameter too.
        object: The model's name in `engine.objects`.
        when: When to measure; by default when loggers write a row.

    >>> model = torch.nn.Linear(1, 1)
    >>> _ = torch.nn.init.constant_(model.weight, 3), torch.nn.init.constant_(model.bias, -4)
    >>> engine = Engine(lambda state, batch: None, WeightNorms(), objects={"model": model})
    >>> engine.run([1], max_epochs=1).metrics
    {'weight_norm': tensor(5.)}
    """

    each: bool = False
    object: str = "model"
    when: EventEnum | Trigger = (
        Events.ITERATION_COMPLETED(every=50) | Events.EPOCH_COMPLETED | Events.COMPLETED
    )

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Measure when the trigger fires."""
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.check)
        engine.on(self.when, stage=Stage.MEASURE)(self.measure)

    def check(self, state: State[Any, Any]) -> None:
        """Refuse a name that no model has.

        Raises:
            KeyError: There is no such model; the message lists those there are.
        """
        objects = state.engine.objects
        if not isinstance(objects.get(self.object), Module):
            known = ", ".join(repr(n) for n, each in objects.items() if isinstance(each, Module))
            raise KeyError(
                f"WeightNorms(object={self.object!r}): the engine has no such model; there is: "
                f"{known or 'none'}"
            )

    def measure(self, state: State[Any, Any]) -> None:
        """Write the norms."""
        names, weights = _weights(state.engine.objects[self.object])
        if not weights:
            return
        # Half precision would overflow; converting the weights first would take their memory twice.
        norms = [vector_norm(each, dtype=_at_least_single(each.dtype)) for each in weights]
        if self.each:
            for name, norm in zip(names, norms, strict=True):
                state.metrics[f"weight_norm/{name}"] = norm
        together = torch.stack([norm.to(norms[0].device, norms[0].dtype) for norm in norms])
        state.metrics["weight_norm"] = vector_norm(together)


def _at_least_single(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _weights(model: Module) -> tuple[list[str], list[Tensor]]:
    named = [(n, p.detach()) for n, p in model.named_parameters() if p.is_floating_point()]
    return [name for name, _ in named], [weight for _, weight in named]
