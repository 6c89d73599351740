"""The best weights of a run, in the model when it is over."""

from __future__ import annotations

import logging
from dataclasses import KW_ONLY, dataclass
from typing import Any

from ..engine import Engine, EventEnum, Events, State, Trigger
from ..engine.modules import evaluating, exchange, fully_sharded, put, reshard, switch, twin
from .common import Mode, Monitored, is_better, is_last_look, mode_of, module_of, refuse_taken
from .validate import Validate, ValidationEvents

logger: logging.Logger = logging.getLogger("camshaft")


@dataclass(frozen=True, eq=False)
class RestoreBest:
    """When the run is over, put the weights that were best by a metric back into the model.

    The run may end by a limit, by EarlyStopping or by `state.stop`. A run that failed or was
    interrupted is not over and keeps its last weights. NaN is never best, of equal values the
    earlier one stays, and all ranks use rank 0's value.

    The best weights are kept on the CPU, as `engine.objects[name]`, and saved with the run; they
    take the size of the model there and in each checkpoint. A checkpoint always has the last
    weights as the model's: a run that goes on, also by `run(state=...)`, goes on from these.

    Args:
        metric: The metric, such as `"val/loss"`.
        mode: `"min"` if smaller is better, the default, or `"max"` if larger is; required for a
            name such as `"val/accuracy"`.
        when: When to look. By default it is whenever a `Validate` has measured the metric; for a
            metric that something else measures, after each epoch and at the end. The weights of the
            moment are kept, so give the trigger of what measures it.
        weights: The object whose weights the metric measures, such as `"ema"`; by default the
            model's own.
        object: The name in `engine.objects` of the model that they are put into.
        name: What the best weights are called in `engine.objects`.

    Raises:
        ValueError: `mode` is neither "min" nor "max", or has to be given for this metric.

    >>> RestoreBest("val/accuracy", mode="highest")
    Traceback (most recent call last):
    ...
    ValueError: RestoreBest(mode='highest'): needs 'min' or 'max'
    """

    metric: str
    _: KW_ONLY
    mode: Mode | None = None
    when: EventEnum | Trigger | None = None
    weights: str | None = None
    object: str = "model"
    name: str = "best"

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", mode_of("RestoreBest", self.metric, self.mode))

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Make room for the best weights, look by the trigger, put them back after the last save.

        Raises:
            ValueError: The engine has no such model, or the name is taken.
        """
        model = module_of(engine.objects, self.object, "RestoreBest")
        refuse_taken(engine.objects, self.name, "RestoreBest", f"{self.name}_by_loss")
        engine.objects[self.name] = twin(model, "cpu")
        engine.on(Events.LOADING)(self.take_back)
        if self.when is None:
            engine.on(ValidationEvents.VALIDATED)(self.look_at_validation)
        engine.on(self.when or Events.EPOCH_COMPLETED(last=True))(self.look)
        # The last save, which holds the last weights, comes before CLOSED.
        engine.on(Events.CLOSED)(self.restore)

    def look_at_validation(self, state: State[Any, Any]) -> None:
        """Look at once if the metric was measured by a `Validate` just now."""
        if self._validation(state) and state.metrics.is_fresh(self.metric):
            self.look(state)

    def look(self, state: State[Any, Any]) -> None:
        """Keep the weights if the metric is better than any before.

        Raises:
            KeyError: Nothing has produced the metric.
            LookupError: The metric was measured in an earlier iteration, of other weights.
        """
        record, objects, metrics = state.recall(self, Record), state.engine.objects, state.metrics
        if self.metric in metrics:
            if metrics.written(self.metric) == record.looked_at:
                return
            if is_last_look(state) and not metrics.is_fresh(self.metric):
                logger.warning(
                    "RestoreBest: the last value of %s is of an earlier iteration than these "
                    "weights, so these are not kept; look when it is measured, by the same when=",
                    self.metric,
                )
                return
        elif self._awaits_validation(state):
            return
        value = record.new_value(state, self.metric)
        if value is not None and is_better(value, record.best, self.mode):
            record.best = value
            reshard(fully_sharded(objects.values()))
            with evaluating(state.engine):
                objects[self.name] = put(objects[self.name], objects[self.weights or self.object])

    def restore(self, state: State[Any, Any]) -> None:
        """Put the best weights into the model, if the run is over."""
        if state.error is not None or state.stop_reason is None or state.is_interrupted:
            return
        record = state.recall(self, Record)
        if record.best is None:
            logger.warning("RestoreBest: %s was never a number; the last weights stay", self.metric)
        elif not record.is_restored:
            self._exchange(state, record)

    def take_back(self, state: State[Any, Any]) -> None:
        """Put the last weights back into the model of a run that is carried on."""
        if self.weights is not None and self.weights not in state.engine.objects:
            raise ValueError(
                f"RestoreBest(weights={self.weights!r}): needs one of the engine's objects: "
                f"{', '.join(map(repr, state.engine.objects))}"
            )
        record = state.recall(self, Record)
        if record.is_restored:
            self._exchange(state, record)

    def _validation(self, state: State[Any, Any]) -> str:
        """The prefix of the `Validate` that measures the metric; empty if there is none."""
        names = (each.name for each in state.engine.find(Validate))
        return next((f"{name}/" for name in names if self.metric.startswith(f"{name}/")), "")

    def _awaits_validation(self, state: State[Any, Any]) -> bool:
        """True if the `Validate` that measures the metric has not run yet."""
        prefix = self._validation(state)
        is_awaited = not any(str(name).startswith(prefix) for name in state.metrics)
        return self.when is None and bool(prefix) and is_awaited

    def _exchange(self, state: State[Any, Any], record: Record) -> None:
        objects = state.engine.objects
        reshard(fully_sharded(objects.values()))
        switch(state.engine, training=record.is_restored)
        exchange(objects[self.object], objects[self.name])
        record.is_restored = not record.is_restored


@dataclass
class Record(Monitored):
    """The best value so far, and where its weights are."""

    best: float | None = None
    is_restored: bool = False
    """True while the model holds the best weights, and `engine.objects[name]` the last ones."""
