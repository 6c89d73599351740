"""Stochastic weight averaging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.optim.swa_utils import get_swa_multi_avg_fn

from ...engine.engine import Engine
from ...engine.events import EventEnum, Events, Trigger
from ...engine.state.state import State
from .average import begin, keep, update


@dataclass(frozen=True, eq=False)
class SWA:
    """Keep the mean of the weights at the moments of a trigger, each counting as much.

    It is `engine.objects[name]`, as the average of `EMA` is. Until its first update it holds the
    weights with which the run began. BatchNorm's statistics of it are best measured anew at the
    end, by torch's `update_bn(loader, engine.objects["swa"])`; torch's `SWALR` is a schedule like
    any other, for `LRSchedule`.

    Args:
        when: When to take the weights in; `Events.EPOCH_COMPLETED(after=160)` begins late.
        buffers: True to average buffers of floating point too, False to copy the model's.
        model: Which of the engine's objects to average.
        name: What the average is called among them; tells several apart.
    """

    when: EventEnum | Trigger = Events.EPOCH_COMPLETED
    buffers: bool = True
    model: str = "model"
    name: str = "swa"

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Make the average, and update it by the trigger."""
        keep(self, engine)

    def begin(self, state: State[Any, Any]) -> None:
        """Let the average of a new run be the weights."""
        begin(self, state)

    def update(self, state: State[Any, Any]) -> None:
        """Take the weights into the average."""
        update(self, state, get_swa_multi_avg_fn())
