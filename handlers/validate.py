"""Validation during training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
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
            `Events.STARTED | ...` evaluates before the first batch too, and not once more where a
            run is resumed.
        epoch_length: How many batches at the most.
        weights: Whose weights to evaluate, such as `"ema"`; the model's own by default. See
            `Engine.using`.
        seed: Of the random numbers that an evaluation draws, the same each time. Without it they
            come from the generators as they stand, which the training moves on.
    """

    data: Iterable[Any]
    name: str = "val"
    when: EventEnum | Trigger = Events.EPOCH_COMPLETED(last=True)
    epoch_length: int | None = None
    weights: str | Mapping[str, str] | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        """Refuse what holds no batches."""
        if not hasattr(self.data, "__iter__") and not hasattr(self.data, "__getitem__"):
            raise TypeError(f"Validate({self.data!r}): needs the batches to evaluate on")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Evaluate when the trigger fires, before others act on the results.

        Raises:
            ValueError: Another one writes metrics of the same names.
        """
        for other in engine.handlers.values():
            if isinstance(other, Validate) and other is not self and other.name == self.name:
                raise ValueError(
                    f"two Validate(name={self.name!r}): the second would write over the metrics of "
                    f"the first; name them apart, or combine their triggers: when=... | ..."
                )
        clauses = (
            replace(clause, once=True) if clause.event is Events.STARTED else clause
            for clause in Trigger.of(self.when).clauses
        )
        engine.on(Trigger(frozenset(clauses)), stage=Stage.MEASURE)(self.evaluate)

    def evaluate(self, state: State[Any, Any]) -> None:
        """Evaluate, and write the metrics."""
        result = state.engine.evaluate(
            self.data,
            epoch_length=self.epoch_length,
            weights=self.weights,
            seed=self.seed,
            name=self.name,
            parent=state,
        )
        for name, value in result.metrics.items():
            state.metrics[f"{self.name}/{name}"] = value
