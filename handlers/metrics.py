"""Metrics over an epoch, in training and in evaluation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from torch.nn import Module, ModuleDict

from ..engine.engine import Engine
from ..engine.events import Events, Stage
from ..engine.state import State


@dataclass(frozen=True, eq=False)
class Metrics:
    """Update metrics with each batch, and compute them at the end of each epoch.

    They are computed over all samples of the epoch and over all ranks, by the metrics' own rules,
    in training and in evaluation alike; each run works on copies of its own, so an evaluation in
    the middle of an epoch disturbs nothing.

    Args:
        metrics: By name: torchmetrics' metrics and collections of them, pytorch-ignite's, or
            anything else with `reset`, `update` and `compute`. A collection's results are named
            `"<name>/<key>"`; one that stands alone gives its own names.
        select: Makes the arguments of `update` of the engine's output; by default they are its
            `prediction` and `target`.
        training: False to measure in evaluation only, where training should not pay for it.

    Raises:
        TypeError: One of them is no metric.

    >>> from torchmetrics import MeanMetric
    >>> engine = Engine(lambda state, batch: batch)
    >>> engine = engine.add(Metrics({"mean": MeanMetric()}, select=lambda output: output))
    >>> engine.run([1.0, 2.0, 6.0], max_epochs=1).metrics
    {'mean': tensor(3.)}
    """

    metrics: Mapping[str, Any] | Any
    select: Callable[[Any], Any] | None = None
    training: bool = True

    def __post_init__(self) -> None:
        """Refuse what does not measure."""
        if not isinstance(self.metrics, Mapping) and not hasattr(self.metrics, "compute"):
            raise TypeError(f"Metrics({self.metrics!r}): needs a dict of metrics by their names")
        for name, metric in self._by_name().items():
            if isinstance(metric, type) or not all(
                callable(getattr(metric, method, None)) for method in ("reset", "update", "compute")
            ):
                raise TypeError(
                    f"Metrics got {metric!r} as {name!r}; a metric needs the methods reset(), "
                    "update() and compute(), and to be an object rather than a class"
                )

    def attach(self, engine: Engine[Any, Any]) -> None:
        """Measure in evaluation, and in training unless told otherwise."""
        for each in (engine, engine.evaluation) if self.training else (engine.evaluation,):
            each.on(Events.EPOCH_STARTED, stage=Stage.MEASURE)(self.reset)
            each.on(Events.ITERATION_COMPLETED, stage=Stage.MEASURE)(self.update)
            ended = Events.EPOCH_COMPLETED(last=each is engine.evaluation)  # also if it was stopped
            each.on(ended, stage=Stage.MEASURE)(self.compute)

    def reset(self, state: State[Any, Any]) -> None:
        """Begin a new epoch."""
        for metric in self._recall(state).metrics.values():
            metric.reset()

    def update(self, state: State[Any, Any]) -> None:
        """Measure one batch."""
        inputs = (self.select or _prediction_and_target)(state.output)
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        self._recall(state).update(inputs)

    def compute(self, state: State[Any, Any]) -> None:
        """Write the results of the epoch."""
        for name, metric in self._recall(state).metrics.items():
            result = metric.compute()
            if isinstance(result, Mapping):
                prefix = f"{name}/" if name else ""
                state.metrics.update({f"{prefix}{key}": value for key, value in result.items()})
            else:
                state.metrics[name] = result

    def _recall(self, state: State[Any, Any]) -> Running:
        return state.recall(self, lambda: Running(deepcopy(self._by_name())))

    def _by_name(self) -> dict[str, Any]:
        given = self.metrics
        return {"": given} if hasattr(given, "compute") else dict(given)


@dataclass
class Running:
    """The copies of the metrics that one run updates."""

    metrics: dict[str, Any]
    device: Any = None
    takes_one: dict[str, bool] = field(default_factory=dict)
    """Whose update takes one tuple, as pytorch-ignite's does."""

    def update(self, inputs: tuple[Any, ...]) -> None:
        """Update all metrics, where the inputs are."""
        device = getattr(inputs[0], "device", None)
        if device != self.device:
            self.device = device
            for metric in self.metrics.values():
                if isinstance(metric, Module):
                    metric.to(device)
        for name, metric in self.metrics.items():
            if name not in self.takes_one:
                self.takes_one[name] = not _takes(metric.update, len(inputs))
            metric.update(inputs) if self.takes_one[name] else metric.update(*inputs)

    def state_dict(self) -> dict[str, Any]:
        """What the metrics have accumulated so far."""
        return {name: _accumulated(metric) for name, metric in self.metrics.items()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on accumulating from there."""
        if saved.keys() != self.metrics.keys():
            raise ValueError(
                f"Metrics has {sorted(self.metrics)} and the saved run had {sorted(saved)}; resume "
                "in the middle of an epoch with the metrics that it began with"
            )
        for name, metric in self.metrics.items():
            _put_back(metric, saved[name])


def _prediction_and_target(output: Any) -> tuple[Any, Any]:
    try:
        return output.prediction, output.target
    except AttributeError:
        raise TypeError(
            f"Metrics got an output that is a {type(output).__name__}, without prediction and "
            "target; give select=, a function that makes the arguments of update() of the output: "
            "Metrics(..., select=lambda output: (output['logits'], output['labels']))"
        ) from None


def _takes(update: Callable[..., Any], arguments: int) -> bool:
    try:
        inspect.signature(update).bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def _accumulated(metric: Any) -> Any:
    """Like a state_dict; torchmetrics' own leaves out what a metric has accumulated."""
    if not isinstance(metric, Module):
        return metric.state_dict() if hasattr(type(metric), "state_dict") else dict(vars(metric))
    if isinstance(metric, ModuleDict):
        list(metric.items())  # lets the members of a collection's compute groups share again
    inside: list[tuple[str, Any]] = list(metric.named_modules())
    return {
        name: {"states": dict(module.metric_state), "updates": module.update_count}
        for name, module in inside
        if hasattr(module, "update_count")
    }


def _put_back(metric: Any, saved: Any) -> None:
    if not isinstance(metric, Module):
        if hasattr(type(metric), "load_state_dict"):
            metric.load_state_dict(saved)
        else:
            vars(metric).update(saved)
        return
    modules = dict(metric.named_modules())
    for name, accumulated in saved.items():
        for key, value in accumulated["states"].items():
            setattr(modules[name], key, value)
        modules[name]._update_count = accumulated["updates"]
