"""The forward pass and the loss as one compiled function, and reports about its graphs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from torch import Tensor
from torch.nn import Module

from ..modules import fully_sharded, parallel_of
from .options import compiled_to_keep

logger: logging.Logger = logging.getLogger("camshaft")

Result = TypeVar("Result")
PLACES = ("torch._dynamo", "torch._inductor", "torch._functorch")
ADVICE = (
    "torch.compile was asked for by compile=, and failed. Leave compile= out to see whether the "
    "step runs without it; compile={'backend': 'aot_eager'} traces the step without making code "
    "for it, which tells a model that cannot be traced from code that cannot be built. On a CPU "
    "code is built by a C++ compiler: install g++, or name one in the environment by CXX"
)


class CompiledForward:
    """Computes what a model returns and its loss: `forward(model, loss_fn, inputs, named, target)`.

    It reports how many graphs torch has made: after the first call where a graph is broken, so that
    Python runs in between; after the first epoch, and if batches need ever more of them.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Prepare the function; torch compiles it when it is called."""
        self._call = compiled_to_keep(_forward, options)
        self._is_first_call = True
        self._graphs = self._epochs = self._late = 0

    def __call__(
        self,
        model: Module,
        loss_fn: Callable[[Any, Any], Tensor | None],
        inputs: tuple[Any, ...],
        named: Mapping[str, Any],
        target: Any,
    ) -> tuple[Any, Tensor | None]:
        """What the model makes of its inputs, and the loss."""
        if not self._is_first_call:
            return self._call(model, loss_fn, inputs, named, target)
        breaks = _counts("graph_break")
        made = self._call(model, loss_fn, inputs, named, target)
        self._is_first_call = False
        is_on_ranks = parallel_of(model) is not None or fully_sharded([model])
        if (more := _counts("graph_break") - breaks) and not is_on_ranks:  # torch breaks it there
            logger.warning(
                "compile=: the forward pass is broken into several graphs at %d places, between "
                "which Python runs (%s). TORCH_LOGS=graph_breaks shows where; with "
                "compile={'fullgraph': True} a break is an error",
                more.total(),
                "; ".join(str(reason).partition("\n")[0] for reason in more),
            )
        return made

    def begin(self, state: Any) -> None:
        """Store the number of graphs that exist before this run."""
        self._graphs, self._epochs, self._late = _counts("stats")["unique_graphs"], 0, 0

    def report(self, state: Any) -> None:
        """Log how many graphs this epoch has made, if it has made any."""
        graphs = _counts("stats")["unique_graphs"]
        more, self._graphs = graphs - self._graphs, graphs
        self._epochs += 1
        if more <= 0:
            return
        if self._epochs == 1:
            logger.info("compile=: torch has made %d graphs in epoch %d", more, state.epoch)
            return
        self._late += 1
        if self._late == 2:
            logger.warning(
                "compile=: torch has made %d more graphs in epoch %d: each size of a batch is "
                "compiled by itself. Pad batches to a few lengths, or make one graph for all sizes "
                "by compile={'dynamic': True}; TORCH_LOGS=recompiles says why each was made",
                *(more, state.epoch),
            )


def _forward(
    model: Module,
    loss_fn: Callable[[Any, Any], Tensor | None],
    inputs: tuple[Any, ...],
    named: Mapping[str, Any],
    target: Any,
) -> tuple[Any, Tensor | None]:
    made = model(*inputs, **named)
    return made, loss_fn(made, target)


def _counts(kind: str) -> Any:
    """What torch has counted in this process: graphs, or the reasons why graphs were broken."""
    from torch._dynamo.utils import counters  # takes a second to import

    return counters[kind].copy()


def explained(process: Callable[..., Result]) -> Callable[..., Result]:
    """The function, whose errors of torch.compile say what asked for it and what to do."""

    @wraps(process)
    def process_compiled(state: Any, batch: Any) -> Result:
        try:
            return process(state, batch)
        except Exception as error:
            if type(error).__module__.startswith(PLACES):
                error.add_note(ADVICE)
            raise

    return process_compiled
