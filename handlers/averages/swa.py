"""Stochastic weight averaging."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim.swa_utils import get_swa_multi_avg_fn

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger, ranks
from ...engine.modules import pairs_of, set_at
from ...engine.update import NoTraining
from .average import AverageOfWeights

Measured = dict[tuple[int, str], Tensor]
"""Statistics by the id of the dict that holds them, and their names."""


@dataclass(frozen=True, eq=False)
class SWA(AverageOfWeights):
    """Keep the mean of the weights at the moments of a trigger.

    The mean is `engine.objects[name]`, as the average of `EMA` is. Until its first update it holds
    the weights with which the run began. torch's `SWALR` is a schedule like any other, for
    `LRSchedule`.

    Args:
        when: When to take the weights in; `Events.EPOCH_COMPLETED(after=160)` begins late.
        buffers: True to average buffers of floating point too, False to copy the model's.
        object: The name in `engine.objects` of the model to average.
        name: What the average is called in `engine.objects`.
        batch_norm: The data by which BatchNorm's running statistics of the mean are measured anew
            when the run is completed, in `Events.COMPLETED`, as torch's `update_bn` does. The
            engine prepares the batches as for an evaluation; the model is in the modes that it is
            trained in. Each rank reads its share once, and the statistics are the means over the
            batches of all ranks.
    """

    when: EventEnum | Trigger = Events.EPOCH_COMPLETED
    _: KW_ONLY
    buffers: bool = True
    object: str = "model"
    name: str = "swa"
    batch_norm: Iterable[Any] | None = None

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Put the mean among the engine's objects, and measure its statistics at the end."""
        super().attach(engine)
        if self.batch_norm is not None:
            engine.on(Events.COMPLETED, stage=Stage.MEASURE)(self.measure_norms)

    def measure_norms(self, state: State[Any, Any]) -> None:
        """Measure BatchNorm's statistics for the mean, by the model that computes with it."""
        assert self.batch_norm is not None
        objects = state.engine.objects
        with state.engine.using({self.object: self.name}):
            measured = measured_norms(state, objects[self.object], self.batch_norm)
        for mine, (holder, name) in pairs_of(objects[self.name], objects[self.object]).values():
            if (id(holder), name) in measured:
                set_at(mine, measured[id(holder), name])

    def fold(self, averages: Any, weights: Any, count: int) -> None:
        """Take further weights into the mean of `count` weights, in place."""
        get_swa_multi_avg_fn()(averages, weights, count)


def measured_norms(state: State[Any, Any], model: Module, data: Iterable[Any]) -> Measured:
    """The running statistics of a model by a pass over the data of all ranks.

    Each is the mean over all batches of all ranks. The model is left as it was.
    """
    modes = [(each, each.training or not model.training) for each in model.modules()]
    norms: list[Any] = [each for each, is_trained in modes if is_trained and _is_tracking(each)]
    process, found = state.engine.evaluation.process, Measured()

    def forward(inner: State[Any, Any], batch: Any) -> None:
        with suppress(NoTraining):  # a step that knows no evaluation has made its forward pass
            process(inner, batch)
        inner.metrics.clear()  # nobody reads them

    def begin(_: State[Any, Any]) -> None:
        for module, mode in modes:
            module.training = mode
        for norm in norms:
            norm.momentum = None  # the mean over all batches
            norm.reset_running_stats()

    def end(_: State[Any, Any]) -> None:
        _take_means(norms)
        found.update(
            {(id(n._buffers), key): each.clone() for n in norms for key, each in n._buffers.items()}
        )

    engine = Engine(forward, objects=state.engine.objects)
    engine.evaluation.on(Events.STARTED)(begin)
    engine.evaluation.on(Events.COMPLETED)(end)
    momenta = [norm.momentum for norm in norms]
    try:
        if norms:
            with torch.compiler.set_stance("force_eager"):  # such norms would break its graph
                engine.evaluate(data, parent=state)
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
    return found


def _is_tracking(module: Any) -> bool:
    kind = torch.nn.modules.batchnorm._BatchNorm  # pyright: ignore  # as `update_bn` asks
    is_norm = isinstance(module, kind)
    return is_norm and module.running_mean is not None


@torch.no_grad()
def _take_means(norms: list[Any]) -> None:
    """Average over ranks in one message, weighted by the number of batches of each rank."""
    statistics = [each for norm in norms for each in (norm.running_mean, norm.running_var)]
    own = norms[0].num_batches_tracked.double()
    flat = torch.cat([each.reshape(-1).double() for each in statistics])
    sums = torch.as_tensor(ranks.total(torch.cat([flat * own, own[None]])))
    means = sums[:-1] / sums[-1]
    for each, part in zip(statistics, means.split([s.numel() for s in statistics]), strict=True):
        each.copy_(part.view_as(each))
