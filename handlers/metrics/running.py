"""The metrics of one run: copies of the given metrics, and means of the given functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from itertools import combinations
from typing import Any

import torch
from torch.nn import Module

from ...engine import Means, Number, flat, mean_over_ranks, metric_states, ranks
from ...engine.checks import type_and_shape, warn

KEEPERS = ("MetricTracker", "MinMaxMetric")
ALIKE = {"average", "validate_args"}
"""Settings that `update` of torchmetrics reads, and that change nothing in a state of one shape."""
SETTINGS: set[type] = {int, float, str, type(None)}
PARTS = ("metric_a", "metric_b")
"""The places of a composition."""
NO_TARGETS = "batches without targets"
"""In a saved state, beside the names of metrics."""


class RunningMetrics:
    """The metrics of one run, and what they have accumulated.

    Args:
        given: By name: objects with reset, update and compute, of which this has copies, and
            functions, of whose values this has the means.
        skip_nan: True to leave NaN out of the means.
    """

    def __init__(self, given: Mapping[str, Any], *, skip_nan: bool) -> None:
        metrics = {name: each for name, each in given.items() if hasattr(each, "compute")}
        self.metrics: dict[str, Any] = {name: _apart(each) for name, each in metrics.items()}
        _count_samples_once(self.metrics.values())
        self.functions: dict[str, Any] = {
            name: each for name, each in given.items() if name not in metrics
        }
        self.means: dict[str, Means] = {name: Means(skip_nan=skip_nan) for name in self.functions}
        self.device: Any = None
        self.takes_one: dict[str, bool] = dict[str, bool]()
        """True for metrics whose update takes one tuple, as pytorch-ignite's does."""
        self.has_no_targets: bool = False
        """True if a batch of this epoch had no target, so the results would miss this batch."""
        self.made: dict[str, dict[str, dict[str, Any]]] = {
            name: metric_states.plain_states(metric) for name, metric in self.metrics.items()
        }
        """The initial plain attributes of each metric and its parts."""

    def reset(self) -> None:
        """Begin a new epoch."""
        self.has_no_targets = False
        for each in (*self.metrics.values(), *self.means.values()):
            each.reset()

    def update(self, inputs: tuple[Any, ...]) -> None:
        """Update all metrics, on the device of the inputs."""
        device = getattr(inputs[0], "device", None)
        if device != self.device:
            self.device = device
            for metric in self.metrics.values():
                if isinstance(metric, Module):
                    metric.to(device)
        for name, metric in self.metrics.items():
            if is_first := name not in self.takes_one:
                self.takes_one[name] = not _takes(metric.update, len(inputs))
            try:
                metric.update(inputs) if self.takes_one[name] else metric.update(*inputs)
            except (RuntimeError, ValueError) as error:
                given = " and ".join(map(type_and_shape, inputs))
                error.add_note(
                    f"in the metric {name!r}, given {given}; Metrics(..., select=) makes of the "
                    "output what a metric is given"
                )
                raise
            if is_first:
                _check_no_more(metric)

    def add(self, inputs: tuple[Any, ...], weight: Number) -> None:
        """Add the functions' values of a batch: numbers, or nested mappings of numbers."""
        with torch.no_grad():
            for name, function in self.functions.items():
                if name not in self.takes_one:
                    self.takes_one[name] = False
                    _check_function(name, function, len(inputs))
                for key, value in flat(name, function(*inputs)).items():
                    if not key:
                        raise TypeError(
                            f"Metrics got the value {value!r} of a function without a name; give "
                            "it one: Metrics({'error': function}), or return a dict of values"
                        )
                    self.means[name].add(key, value, weight)

    def results(self) -> dict[str, Any]:
        """The results of all batches so far, over all ranks."""
        sums = {key: pair for means in self.means.values() for key, pair in means.sums.items()}
        found: dict[str, Any] = dict(mean_over_ranks(sums)) if self.functions else {}
        for name, metric in self.metrics.items():
            for key, value in flat(name, metric.compute()).items():
                found[key or type(metric).__name__] = value  # one number of a metric given alone
        return found

    def state_dict(self) -> dict[str, Any]:
        """The accumulated values of the metrics."""
        saved = {
            name: metric_states.accumulated(each, self.made[name])
            for name, each in self.metrics.items()
        }
        saved |= {name: means.state_dict() for name, means in self.means.items()}
        return saved | ({NO_TARGETS: True} if self.has_no_targets else {})

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on accumulating from there."""
        saved = dict(saved)
        self.has_no_targets = saved.pop(NO_TARGETS, False)
        own = {**self.metrics, **self.means}
        if saved.keys() != own.keys():
            raise ValueError(
                f"Metrics has {sorted(own)} and the saved run had {sorted(saved)}; resume "
                "in the middle of an epoch with the metrics that it began with"
            )
        for name, each in own.items():
            metric_states.put_back_metric(each, saved[name])


def refuse_keepers(metric: Any) -> None:
    """Refuse metrics of torchmetrics that keep values over several epochs or evaluations."""
    for each in metric.modules() if isinstance(metric, Module) else ():
        if (kind := type(each).__name__) in KEEPERS:
            raise TypeError(
                f"Metrics got a {kind}, which keeps values from one epoch to the next, and Metrics "
                "begins each epoch and each evaluation anew: give it the metric inside. "
                "History()['val/accuracy'] then has the value of each evaluation, for min() and "
                "max(), and RestoreBest('val/accuracy') and best(1, 'val/accuracy') keep the best"
            )


def warn_of_groups(metric: Any) -> None:
    """Warn of a collection whose metrics with other settings may get one state.

    MetricCollection of torchmetrics 1.9 updates one metric for all whose states are equal after the
    first batch, whatever they are of. Those that `update` reads other settings of may differ later.
    """
    for each in metric.modules() if isinstance(metric, Module) else ():
        collection: Any = each
        if getattr(each, "_enable_compute_groups", False) is not True:
            continue
        for (name, one), (other_name, other) in combinations(collection.items(keep_base=True), 2):
            update = type(one).update
            read = getattr(update, "__code__", None) if type(other).update is update else None
            for field in {*read.co_names} - ALIKE if read is not None else ():
                ours, theirs = vars(one).get(field), vars(other).get(field)
                if {type(ours), type(theirs)} <= SETTINGS and ours != theirs:
                    warn(
                        f"the metrics {name!r} and {other_name!r} of a MetricCollection differ by "
                        f"their {field} ({ours!r}, {theirs!r}). If the first batch gives both the "
                        "same counts, torchmetrics computes one of them for both from then on: "
                        "write MetricCollection(..., compute_groups=False)"
                    )


def _apart(metric: Any) -> Any:
    """A copy of a metric in which each place of a composition has a part of its own.

    A composition of torchmetrics (1.9), such as `hits / (hits + misses)`, updates a part once for
    each place that it has, and so a sum would count each batch several times.
    """
    copied = deepcopy(metric)
    left = [*copied.modules()] if isinstance(copied, Module) else []
    others = (part for each in left for part in each.named_children() if part[0] not in PARTS)
    seen = {id(part) for _, part in others}
    for each in left:  # and those inside of copies
        for place in PARTS:
            part: Any = getattr(each, place, None)
            if isinstance(part, Module):
                if id(part) in seen:
                    part = deepcopy(part)
                    setattr(each, place, part)
                    left += part.modules()
                seen.add(id(part))
    return copied


def _takes(update: Callable[..., Any], arguments: int) -> bool:
    try:
        inspect.signature(update).bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def _check_function(name: str, function: Any, arguments: int) -> None:
    """Refuse a function that does not take as many arguments as the metrics get."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # written in C, without one
        return
    if not _takes(function, arguments):
        name = name or getattr(function, "__name__", type(function).__name__)
        raise TypeError(
            f"Metrics calls the function {name!r} with {arguments} arguments, by default "
            f"prediction and target, and it is function{signature}: write "
            "lambda prediction, target: ..., or choose the arguments by select="
        )


def _count_samples_once(metrics: Iterable[Any]) -> None:
    """Let torchmetrics compute over the ranks that read different data, if it has no group."""
    if (group := ranks.data_group()) is None:
        return
    for metric in metrics:
        for each in metric.modules() if isinstance(metric, Module) else ():
            if getattr(each, "process_group", group) is None:
                each.process_group = group


def _check_no_more(metric: Any) -> None:
    """Stop torchmetrics from checking arguments after the first batch: it waits for the device."""
    modules: list[Any] = list(metric.modules()) if isinstance(metric, Module) else []
    for module in modules:
        if getattr(module, "validate_args", False):
            module.validate_args = False
