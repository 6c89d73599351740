"""Running means of metrics."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from ...engine import (
    Engine,
    EventEnum,
    Events,
    LastValues,
    Means,
    Stage,
    State,
    Trigger,
    Weight,
    mean_over_ranks,
    weight_of,
)
from ..common import AT_EACH_ROW, check_metric, refuse_overwriting
from ..validate import Validate


@dataclass(frozen=True, eq=False)
class Average:
    """Average a metric that each iteration writes: over the epoch, a window, or exponentially.

    - `Average("loss")` writes `"loss/epoch"`, the mean over the epoch so far, at its end.
    - `Average("loss", over=100)` writes `"loss/mean"`, over the last 100 values.
    - `Average("loss", decay=0.98)` writes `"loss/smooth"`, in which a value counts 0.98 times as
      much as the next one; the first values are not pulled towards zero.

    Each value is weighted by the samples of its batch, over all ranks, as in an evaluation. Values
    stay on their device; each write is one collective. Iterations that do not write the metric are
    left out. In an evaluation, the mean over all batches replaces the metric itself, as the mean
    loss does in a `supervised` engine.

    Args:
        metric: The metric.
        over: The number of values in the window.
        decay: The decay of the exponential mean, between 0 and 1.
        weight: The weight of a value: a function of the engine's output, or a number; by default
            the number of targets that `supervised(..., weight=)` counts, or of samples in its
            `target`, or else in its `prediction`.
        skip_nan: True to leave NaN out; otherwise one NaN makes the mean NaN.
        when: When to write; by default at the end of the epoch, or, of a window and an exponential
            mean, every 50 iterations and after each epoch, as loggers do by default.
        name: The name of the mean, instead of the names above.

    Raises:
        ValueError: `over` or `decay` is out of its range, or both are given.

    >>> def step(state, batch):
    ...     state.metrics["loss"] = batch
    >>> engine = Engine(step, Average("loss", weight=1), Average("loss", over=2, weight=1))
    >>> engine.run([1.0, 2.0, 6.0], max_epochs=1).metrics
    {'loss': 6.0, 'loss/epoch': 3.0, 'loss/mean': 4.0}
    """

    metric: str
    _: KW_ONLY
    over: int | None = None
    decay: float | None = None
    weight: Weight = None
    skip_nan: bool = False
    when: EventEnum | Trigger | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_metric("Average", self.metric)
        if self.over is not None and self.decay is not None:
            raise ValueError("Average(over=..., decay=...): give one of them, or use two averages")
        if self.over is not None and (type(self.over) is not int or self.over < 1):
            raise ValueError(f"Average(over={self.over!r}): needs a number of values, from 1")
        if self.decay is not None and not 0 < self.decay < 1:
            raise ValueError(f"Average(decay={self.decay!r}): needs a number between 0 and 1")

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Take each new value; write the mean when the trigger fires.

        Raises:
            ValueError: Another mean has the same name.
        """
        means = (each for each in engine.find(Average) if each._kind != self._kind)
        refuse_overwriting(self, means, lambda each: (each._written,))
        engine.on(Events.ITERATION_COMPLETED, stage=Stage.MEASURE)(self.add)
        ended = Events.EPOCH_COMPLETED(last=True)
        when = self.when or (ended if self._is_of_epoch else AT_EACH_ROW)
        engine.on(when, stage=Stage.MEASURE)(self.write)
        if self._is_of_epoch:
            engine.on(Events.EPOCH_STARTED, stage=Stage.MEASURE)(self.reset)
            engine.on(Events.EPOCH_COMPLETED, stage=Stage.REPORT)(self.check)
            engine.evaluation.on(Events.ITERATION_COMPLETED, stage=Stage.MEASURE)(self.add)
            engine.evaluation.on(ended, stage=Stage.MEASURE)(self.write)

    def reset(self, state: State[Any, Any]) -> None:
        """Begin a new epoch."""
        self._recall(state).sums.reset()

    def add(self, state: State[Any, Any]) -> None:
        """Take the value, if it is new."""
        average, metrics = self._recall(state), state.metrics
        if metrics.is_new(self.metric, average.looked_at, allow_stale=True):
            average.looked_at = metrics.written(self.metric)
            if state.is_discarded:  # the value of a skipped step, which may be NaN
                return
            weight = weight_of(state.output, self.weight, f"Average({self.metric!r})")
            average.sums.add(self._written, metrics[self.metric], weight)

    def write(self, state: State[Any, Any]) -> None:
        """Write the mean of the values so far, if there are any.

        Raises:
            KeyError: Nothing has produced the metric; the message lists the metrics.
        """
        self.add(state)
        average = self._recall(state)
        if state.training and not self._is_of_epoch:
            state.metrics.written(self.metric)
        for name, mean in mean_over_ranks(average.sums.sums).items():
            if state.training:
                state.metrics[name] = mean
            else:
                state.metrics.replace(self.metric, mean)

    def check(self, state: State[Any, Any]) -> None:
        """Refuse a metric that neither the training nor a validation writes."""
        metrics = state.metrics
        if self.metric in metrics or any(n.endswith(f"/{self.metric}") for n in metrics):
            return
        prefixes = [f"{each.name}/" for each in state.engine.find(Validate)]
        if all(any(n.startswith(prefix) for n in metrics) for prefix in prefixes):
            metrics.written(self.metric)

    @property
    def _is_of_epoch(self) -> bool:
        return self.over is None and self.decay is None

    @property
    def _written(self) -> str:
        kind = "mean" if self.over is not None else "epoch" if self.decay is None else "smooth"
        return self.name or f"{self.metric}/{kind}"

    @property
    def _kind(self) -> tuple[Any, ...]:
        """What its result depends on: a mean may be written by two triggers."""
        return self.metric, self.over, self.decay, self.weight, self.skip_nan

    def _recall(self, state: State[Any, Any]) -> RunningMean:
        return state.recall(self, self._begin)

    def _begin(self) -> RunningMean:
        if self.over is not None:
            return RunningMean(LastValues(self.over, skip_nan=self.skip_nan))
        return RunningMean(Means(self.decay or 1.0, skip_nan=self.skip_nan))


@dataclass
class RunningMean:
    """The mean of the values so far, and which write of the metric was the last of them."""

    sums: Means | LastValues
    looked_at: int = 0
