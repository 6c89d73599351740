"""The forward pass and the loss as one compiled function, whose gradient is compiled with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.nn import Module

from ..modules import fully_sharded, is_parallel
from .options import compiled_to_keep

logger = logging.getLogger("camshaft")


class CompiledForward:
    """Computes what a model returns and its loss: `forward(model, loss_fn, inputs, named, target)`.

    After its first call it tells how often the graph is broken: there Python runs in between.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Prepare the function; torch compiles it when it is called."""
        self._call = compiled_to_keep(_forward, options)
        self._is_told = False

    def __call__(
        self,
        model: Module,
        loss_fn: Callable[[Any, Any], Tensor | None],
        inputs: tuple[Any, ...],
        named: Mapping[str, Any],
        target: Any,
    ) -> tuple[Any, Tensor | None]:
        """What the model makes of its inputs, and the loss."""
        before = None if self._is_told else _breaks()
        made = self._call(model, loss_fn, inputs, named, target)
        if before is not None:
            self._is_told = True
            if not (is_parallel(model) or fully_sharded([model])):  # torch breaks graphs there
                _tell(_breaks() - before)
        return made


def _forward(
    model: Module,
    loss_fn: Callable[[Any, Any], Tensor | None],
    inputs: tuple[Any, ...],
    named: Mapping[str, Any],
    target: Any,
) -> tuple[Any, Tensor | None]:
    made = model(*inputs, **named)
    return made, loss_fn(made, target)


def _breaks() -> Any:
    """How often torch has broken graphs in this process, by reason."""
    from torch._dynamo.utils import counters  # takes a second to import

    return counters["graph_break"].copy()


def _tell(breaks: Any) -> None:
    if breaks:
        reasons = "; ".join(str(reason).partition("\n")[0] for reason in breaks)
        logger.warning(
            "compile=: the forward pass is broken into several graphs at %d places, between which "
            "Python runs (%s). TORCH_LOGS=graph_breaks shows where; with "
            "compile={'fullgraph': True} a break is an error",
            breaks.total(),
            reasons,
        )
