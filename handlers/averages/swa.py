"""Stochastic weight averaging."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch.nn import Module
from torch.optim.swa_utils import get_swa_multi_avg_fn, update_bn

from ...engine import Engine, EventEnum, Events, Stage, State, Trigger, ranks
from ...engine.modules import untouched
from .average import AverageOfWeights


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
            when the run is completed, in `Events.COMPLETED`, by torch's `update_bn`: each rank
            reads its share once, and the statistics are the means over the batches of all ranks.
    """

    when: EventEnum | Trigger = Events.EPOCH_COMPLETED
    _: KW_ONLY
    buffers: bool = True
    object: str = "model"
    name: str = "swa"
    batch_norm: Iterable[Any] | None = None

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Put the mean among the engine's objects, and measure its statistics at the end.

        Raises:
            ValueError: As for every average.
        """
        super().attach(engine)
        if self.batch_norm is not None:
            engine.on(Events.COMPLETED, stage=Stage.MEASURE)(self.measure_norms)

    def measure_norms(self, state: State[Any, Any]) -> None:
        """Measure BatchNorm's statistics for the mean, by the model that computes with it."""
        assert self.batch_norm is not None
        with state.engine.using({self.object: self.name}):
            measure_batch_norms(state.engine.objects[self.object], self.batch_norm)

    def fold(self, averages: Any, weights: Any, count: int) -> None:
        """Take further weights into the mean of `count` weights, in place."""
        get_swa_multi_avg_fn()(averages, weights, count)


def measure_batch_norms(model: Module, data: Iterable[Any]) -> None:
    """Measure the running statistics of a model anew by a pass over the data of all ranks.

    Each becomes the mean over all batches of all ranks. The mode of each module, and the random
    number generators, are left as they were.
    """
    norms: list[Any] = [each for each in model.modules() if _is_tracking(each)]
    if not norms:
        return
    device = norms[0].running_mean.device
    with untouched({"model": model}, data):
        update_bn(data, model, device)
    _take_means(norms)


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
