"""Validation during training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..engine.engine import Engine
from ..engine.events import EventEnum, Events, Stage, Trigger
from ..engine.state import State


@dataclass(frozen=True, eq=False)
class Validate:
    """Evaluate with the engine that is training, and keep the results as metrics.

    What the evaluation measures becomes `"<name>/<metric>"`, such as `"val/loss"`. Training is
    the same to the last bit as without it.

    Args:
        data: The batches to evaluate on, all of them or `epoch_length`.
        name: Tells several sets apart.
        when: When to evaluate: after each epoch, and at the end of a run that ends inside one.
        epoch_length: How many batches at the most.
    """

    data: Iterable[Any]
    name: str = "val"
    when: EventEnum | Trigger = Events.EPOCH_COMPLETED(last=True)
    epoch_length: int | None = None

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Evaluate when the trigger fires, before others act on the results."""
        engine.on(self.when, stage=Stage.MEASURE)(self.evaluate)

    def evaluate(self, state: State[Any, Any]) -> None:
        """Evaluate, and write the metrics."""
        assert state.engine is not None
        result = state.engine.evaluate(self.data, epoch_length=self.epoch_length, parent=state)
        for name, value in result.metrics.items():
            state.metrics[f"{self.name}/{name}"] = value
