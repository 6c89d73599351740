"""Norms of weights."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.linalg import vector_norm

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger
from ...engine.modules import are_spread, norms
from ..common import AT_EACH_ROW, module_of, refuse_overwriting


@dataclass(frozen=True, eq=False)
class WeightNorms:
    """Measure the Euclidean norm of a model's weights: of all together, and of each parameter.

    The metrics are `"weight_norm"`, and `"weight_norm/<parameter>"` with `each=True`. They stay on
    their device; between two measurements it costs nothing.

    Args:
        each: True to measure the norm of each parameter too.
        object: The model's name in `engine.objects`.
        name: For several models: the metric is then `"weight_norm/<name>"`.
        when: When to measure; by default when loggers write a row.

    >>> model = torch.nn.Linear(1, 1)
    >>> _ = torch.nn.init.constant_(model.weight, 3), torch.nn.init.constant_(model.bias, -4)
    >>> engine = Engine(lambda state, batch: None, WeightNorms(), objects={"model": model})
    >>> engine.run([1], max_epochs=1).metrics
    {'weight_norm': tensor(5.)}
    """

    each: bool = False
    _: KW_ONLY
    object: str = "model"
    name: str | None = None
    when: EventEnum | Trigger = AT_EACH_ROW

    @property
    def metric(self) -> str:
        """The name of the metric."""
        return "weight_norm" if self.name is None else f"weight_norm/{self.name}"

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Measure when the trigger fires.

        Raises:
            ValueError: Another `WeightNorms` writes the same metric.
        """
        refuse_overwriting(self, engine.find(WeightNorms), lambda each: (each.metric,))
        engine.on(Events.STARTED, stage=Stage.MEASURE)(self.check)
        engine.on(self.when, stage=Stage.MEASURE)(self.measure)

    def check(self, state: State[Any, Any]) -> None:
        """Refuse a name that no model has."""
        module_of(state.engine.objects, self.object, "WeightNorms")

    def measure(self, state: State[Any, Any]) -> None:
        """Write the norms."""
        model = module_of(state.engine.objects, self.object, "WeightNorms")
        kinds = (Tensor.is_floating_point, Tensor.is_complex)
        own = model.named_parameters()
        named = [(n, p.detach()) for n, p in own if any(kind(p) for kind in kinds)]
        if not named or state.metrics.is_fresh(self.metric):  # at the end of an epoch or run
            return
        found = _norms(dict(named))
        if self.each:
            for name, norm in found.items():
                state.metrics[f"{self.metric}/{name}"] = norm
        first, *_ = found.values()
        together = torch.stack([norm.to(first.device, first.dtype) for norm in found.values()])
        state.metrics[self.metric] = vector_norm(together)


def _norms(named: dict[str, Tensor]) -> dict[str, Tensor]:
    if are_spread(named.values()):
        return dict(zip(named, norms(list(named.values())), strict=True))
    # Half precision would overflow; converting the weights first would take their memory twice.
    dtypes = {name: torch.promote_types(each.dtype, torch.float32) for name, each in named.items()}
    return {name: vector_norm(each, dtype=dtypes[name]) for name, each in named.items()}
