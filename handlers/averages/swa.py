"""Stochastic weight averaging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.optim.swa_utils import get_swa_multi_avg_fn

from ...engine import EventEnum, Events, Trigger
from .average import AverageOfWeights


@dataclass(frozen=True, eq=False)
class SWA(AverageOfWeights):
    """Keep the mean of the weights at the moments of a trigger.

    The mean is `engine.objects[name]`, as the average of `EMA` is. Until its first update it holds
    the weights with which the run began. At the end, measure its BatchNorm statistics anew by
    torch's `update_bn(loader, engine.objects["swa"])`; torch's `SWALR` is a schedule like any
    other, for `LRSchedule`.

    Args:
        when: When to take the weights in; `Events.EPOCH_COMPLETED(after=160)` begins late.
        buffers: True to average buffers of floating point too, False to copy the model's.
        object: The name in `engine.objects` of the model to average.
        name: What the average is called in `engine.objects`.
    """

    when: EventEnum | Trigger = Events.EPOCH_COMPLETED
    buffers: bool = True
    object: str = "model"
    name: str = "swa"

    def fold(self, averages: Any, weights: Any, count: int) -> None:
        """Take further weights into the mean of `count` weights, in place."""
        get_swa_multi_avg_fn()(averages, weights, count)
