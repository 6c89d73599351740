"""Validation during training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from ..engine import Engine, EventEnum, Events, Stage, State, Trigger
from ..engine.checks import refuse_samples, warn_of_shared


class ValidationEvents(EventEnum):
    """What happens to validations."""

    VALIDATED = "validated"
    """A `Validate` has written its metrics: the weights are still those that it measured. Or a
    `ValidateElsewhere` has: the weights are those of a later iteration."""


@dataclass(slots=True)
class Compared:
    """Whether the samples of an evaluation were compared with those of the training."""

    is_done: bool = False


@dataclass(frozen=True, eq=False)
class Validate:
    """Evaluate with the engine that is training, and keep the results as metrics.

    The metrics of the evaluation become `"<name>/<metric>"`, such as `"val/loss"`. Training is the
    same to the last bit as without it.

    Args:
        data: The batches to evaluate on.
        name: The prefix of the metrics; several data sets need several names.
        when: When to evaluate: by default after each epoch, and at the end of a run that ends
            inside one. `Events.STARTED | ...` also evaluates before the first batch, but not again
            when the run is resumed.
        epoch_length: The largest number of batches; by default all of them.
        weights: The object whose weights to evaluate, such as `"ema"`; by default the model's own.
            See `Engine.using`.
        seed: The seed of the evaluation's random numbers, which are then the same each time. By
            default they depend on the progress of the training.
    """

    data: Iterable[Any] = field(repr=False)  # an error about this handler stays readable
    _: KW_ONLY
    name: str = "val"
    when: EventEnum | Trigger = Events.EPOCH_COMPLETED(last=True)
    epoch_length: int | None = None
    weights: str | Mapping[str, str] | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if not hasattr(self.data, "__iter__") and not hasattr(self.data, "__getitem__"):
            raise TypeError(f"Validate({self.data!r}): needs the batches to evaluate on")
        if not isinstance(self.name, str):
            raise TypeError(
                f"Validate(name={self.name!r}): needs a name, such as 'val'; write "
                "when=Events.EPOCH_COMPLETED(every=2) for how often"
            )

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Evaluate by the trigger, before other handlers act on the results.

        Raises:
            TypeError: The data gives samples instead of batches.
            ValueError: Another `Validate` has the same name.
        """
        refuse_samples(self.data)
        for other in engine.find(Validate):
            if other is not self and other.name == self.name:
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
        compared = state.recall(self, Compared, saved=False)
        if not compared.is_done:
            compared.is_done = True
            warn_of_shared(state.control.data, self.data)
        result = state.engine.evaluate(
            self.data,
            epoch_length=self.epoch_length,
            weights=self.weights,
            seed=self.seed,
            name=self.name,
            parent=state,
        )
        write_metrics(state, self.name, result.metrics)


def write_metrics(state: State[Any, Any], name: str, measured: Mapping[str, Any]) -> None:
    """Write what an evaluation of this name has measured, and announce it."""
    metrics = state.metrics
    # One that a stop had left is made again, and what it measured then is no other row.
    is_again = repr(ValidationEvents.VALIDATED) in state.control.left_at
    metrics.before = {} if is_again else metrics.entries(0)
    metrics.update({f"{name}/{each}": value for each, value in measured.items()})
    state.fire(ValidationEvents.VALIDATED)
    metrics.before = {}
