"""Metrics over an epoch, in training and in evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

from ...engine import Engine, Events, Stage, State, Weight, part_of, ranks, weight_of
from ..common import refuse_overwriting
from .running import RunningMetrics, refuse_keepers, warn_of_groups

METHODS = ("reset", "update", "compute")
MISSING = object()


@dataclass(frozen=True, eq=False)
class Metrics:
    """Update metrics with each batch, and compute them at the end of each epoch.

    The results cover all samples of the epoch and all ranks, by the metrics' own rules, in training
    and in evaluation. Each run works on its own copies, so that an evaluation in the middle of an
    epoch does not disturb the training.

    A plain function is called with the same arguments as `update`. It returns the value of the
    batch: a number, or a dict of numbers, which may be nested. The metric is the weighted mean over
    the batches; a key that only some batches have is the mean over these. NaN in one batch makes
    the mean NaN.

    Args:
        metrics: By name: torchmetrics' metrics and collections of them, pytorch-ignite's,
            anything else with `reset`, `update` and `compute`, and functions. Several results of
            one metric are called `"<name>/<key>"`; a metric given alone names its own results, and
            one result without a name is called as its class.
        select: Makes the arguments of `update` from the engine's output; by default they are its
            `prediction` and `target`, or `logits` and `labels`. Where the target is None, as in
            an evaluation without targets, nothing is measured.
        weight: The weight of a batch in the mean of a function: a function of the engine's output,
            or a number; by default the number of samples in its `target`.
        skip_nan: True to leave NaN out of the means of functions.
        training: False to measure in evaluation only, to keep training fast.

    Raises:
        TypeError: One of `metrics` is not a metric.

    >>> from torchmetrics import MeanMetric
    >>> engine = Engine(lambda state, batch: batch)
    >>> metrics = {"mean": MeanMetric(), "square": lambda x: x * x}
    >>> engine = engine.add(Metrics(metrics, select=lambda output: output, weight=1))
    >>> engine.run([1.0, 2.0, 6.0], max_epochs=1).metrics["mean"]
    tensor(3.)
    """

    metrics: Mapping[str, Any] | Any
    _: KW_ONLY
    select: Callable[[Any], Any] | None = None
    weight: Weight = None
    skip_nan: bool = False
    training: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.metrics, Mapping) and not self._stands_alone():
            raise TypeError(f"Metrics({self.metrics!r}): needs a dict of metrics by their names")
        for name, metric in self._by_name().items():
            refuse_keepers(metric)
            warn_of_groups(metric)
            methods = [callable(getattr(metric, method, None)) for method in METHODS]
            is_function = callable(metric) and not any(methods)
            if isinstance(metric, type) or not (all(methods) or is_function):
                raise TypeError(
                    f"Metrics got {metric!r} as {name!r}; a metric needs the methods reset(), "
                    "update() and compute(), and to be an object rather than a class; or it is a "
                    "function of prediction and target"
                )

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Measure in evaluation, and in training unless `training` is False.

        Raises:
            ValueError: Another `Metrics` has one of the names.
        """
        refuse_overwriting(self, engine.find(Metrics), Metrics._by_name)
        for each in (engine, engine.evaluation) if self.training else (engine.evaluation,):
            each.on(Events.EPOCH_STARTED, stage=Stage.MEASURE)(self.reset)
            each.on(Events.ITERATION_COMPLETED, stage=Stage.MEASURE)(self.update)
            ended = Events.EPOCH_COMPLETED(last=each is engine.evaluation)  # also if it was stopped
            each.on(ended, stage=Stage.MEASURE)(self.compute)

    def reset(self, state: State[Any, Any]) -> None:
        """Begin a new epoch."""
        self._recall(state).reset()

    def update(self, state: State[Any, Any]) -> None:
        """Measure one batch, unless its step was skipped or it has no target."""
        if state.is_discarded:
            return
        running, output = self._recall(state), state.output
        inputs = (self.select or _prediction_and_target)(output)
        is_output = inputs is output and hasattr(output, "_fields")  # it is one, and no pair
        inputs = (inputs,) if is_output or not isinstance(inputs, tuple) else inputs
        if any(each is None for each in inputs) and part_of(output, "target", MISSING) is None:
            running.has_no_targets = True
            return
        running.update(inputs)
        if running.functions:
            running.add(inputs, weight_of(output, self.weight, "Metrics"))

    def compute(self, state: State[Any, Any]) -> None:
        """Write the results of the epoch, if all its batches had targets, on all ranks."""
        running = self._recall(state)
        if not ranks.any_rank(running.has_no_targets):
            state.metrics.update(running.results())

    def _recall(self, state: State[Any, Any]) -> RunningMetrics:
        make = partial(RunningMetrics, self._by_name(), skip_nan=self.skip_nan)
        return state.recall(self, make)

    def _by_name(self) -> dict[str, Any]:
        return {"": self.metrics} if self._stands_alone() else dict(self.metrics)

    def _stands_alone(self) -> bool:
        return hasattr(self.metrics, "compute") or callable(self.metrics)


def _prediction_and_target(output: Any) -> tuple[Any, Any]:
    prediction, target = part_of(output, "prediction", MISSING), part_of(output, "target", MISSING)
    no_target = target is None and part_of(output, "loss") is not None  # so there was a target
    if prediction is MISSING or target is MISSING or no_target:
        raise TypeError(
            f"Metrics got an output that is a {type(output).__name__}, without prediction and "
            "target; give select=, a function that makes the arguments of update() of the output: "
            "Metrics(..., select=lambda output: (output['scores'], output['classes']))"
        )
    return prediction, target
