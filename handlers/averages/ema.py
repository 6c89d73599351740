"""The exponential moving average of weights."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any

from torch.optim.swa_utils import get_ema_multi_avg_fn

from ...engine import EventEnum, Events, Trigger
from ...engine.checks import warn
from .average import AverageOfWeights

_folding = lru_cache(maxsize=8)(get_ema_multi_avg_fn)
"""What moves averages by a decay, made once while the decay stays."""

LIKE_MOMENTUM = 0.1
"""Up to here, a decay is like what others call a momentum: the part that is new."""


@dataclass(frozen=True, eq=False)
class EMA(AverageOfWeights):
    """Keep an exponential moving average of the weights, updated after each performed step.

    The first update copies the weights; each later one makes the average
    `decay * average + (1 - decay) * weights`. The average is `engine.objects[name]`, a module that
    is saved and resumed with the run under the plain names of its weights, and evaluated by
    `Validate(loader, name="ema", weights="ema")` or `engine.evaluate(loader, weights="ema")`.
    Training is the same with and without it.

    Args:
        decay: How much of the average stays in an update.
        warmup: True to begin with a smaller decay, so that the first weights are soon forgotten:
            after n updates the decay is `min(decay, (1 + n) / (10 + n))`.
        when: When to update. `Events.STEP_COMPLETED(every=10, after=1000)` skips the beginning.
        buffers: True to average buffers of floating point too, such as BatchNorm's running
            statistics, which then belong to the averaged weights; False to copy the model's.
        object: The name in `engine.objects` of the model to average.
        name: What the average is called in `engine.objects`; several averages need several names.

    Raises:
        ValueError: `decay` is not between 0 and 1.

    >>> import torch
    >>> from camshaft import Engine
    >>> engine = Engine(lambda state, batch: None, objects={"model": torch.nn.Linear(2, 1)})
    >>> engine = engine.add(EMA(0.999), EMA(0.9999, name="slow"))
    >>> list(engine.objects)
    ['model', 'ema', 'slow']
    """

    decay: float = 0.999
    _: KW_ONLY
    warmup: bool = True
    when: EventEnum | Trigger = Events.STEP_COMPLETED
    buffers: bool = True
    object: str = "model"
    name: str = "ema"

    def __post_init__(self) -> None:
        if not isinstance(self.decay, int | float) or not 0 <= self.decay < 1:
            raise ValueError(f"EMA(decay={self.decay!r}): needs a number from 0 to less than 1")
        if 0 < self.decay <= LIKE_MOMENTUM:
            warn(
                f"EMA({self.decay}) keeps so little of the average that it is almost the weights "
                f"themselves; a momentum of {self.decay}, as in ignite's EMAHandler, is "
                f"EMA({1 - self.decay:.10g})"
            )

    def decay_after(self, updates: int) -> float:
        """The decay of the update after this many updates.

        >>> EMA(0.999).decay_after(8), EMA(0.999).decay_after(100_000)
        (0.5, 0.999)
        """
        return min(self.decay, (1 + updates) / (10 + updates)) if self.warmup else self.decay

    def fold(self, averages: Any, weights: Any, count: int) -> None:
        """Move the averages towards the weights, in place."""
        _folding(self.decay_after(count))(averages, weights, count)
