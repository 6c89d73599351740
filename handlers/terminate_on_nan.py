"""An end to runs whose loss is no number any more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..engine import ranks
from ..engine.engine import Engine
from ..engine.events import EventEnum, Events, Stage, Trigger
from ..engine.state import State


@dataclass(frozen=True, eq=False)
class TerminateOnNaN:
    """Raise `FloatingPointError` when a metric is NaN or infinite.

    It raises rather than stops, so that the run is not taken for a finished one: no checkpoint is
    written of it any more, the last one is from before, and the process exits with an error.

    Each look reads the metric from its device, and asks the other ranks: on an accelerator that
    waits for the step to end. `when=Events.ITERATION_COMPLETED(every=50)` looks less often; then
    a checkpoint may hold the damage of the iterations in between.

    Args:
        metric: What to look at.
        when: When to look.
    """

    metric: str = "loss"
    when: EventEnum | Trigger = Events.ITERATION_COMPLETED

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Look when the trigger fires."""
        engine.on(self.when, stage=Stage.MEASURE)(self.look)

    def look(self, state: State[Any, Any]) -> None:
        """Raise if the metric is not finite, on this rank or on another."""
        value = float(state.metrics[self.metric])
        if ranks.any_rank(not math.isfinite(value)):
            where = f"is {value}" if not math.isfinite(value) else "is not finite on another rank"
            raise FloatingPointError(
                f"{self.metric} {where}; look at the batch in state.batch, at the learning rate "
                "and at the gradient norm (ClipGradNorm), or carry on from the last checkpoint"
            )
