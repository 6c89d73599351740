"""The accumulated states of torchmetrics' metrics, which their own `state_dict` leaves out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.nn import Module, ModuleDict

CACHES = {"_computed", "_forward_cache", "_cache"}
"""Attributes of torchmetrics that are recomputed."""


def plain_states(metric: Any) -> dict[str, dict[str, Any]]:
    """By place: the plain attributes of each metric inside a module; see `accumulated`."""
    return _by_part(metric, _plain)


def accumulated(metric: Any, made: Mapping[str, Any]) -> Any:
    """The accumulated values of a metric, or of each metric inside a module.

    They are its states, and attributes that have changed since it was made, such as the place in a
    window.

    Args:
        metric: A metric of torchmetrics, a module that holds some, or a metric of another library.
        made: The result of `plain_states` when the metric was made.
    """
    if not isinstance(metric, Module):
        return metric.state_dict() if hasattr(type(metric), "state_dict") else dict(vars(metric))
    for each in metric.modules():
        if isinstance(each, ModuleDict):
            list(each.items())  # lets the compute groups of a collection share their states again
    found = _by_part(
        metric, lambda each: {"states": dict(each.metric_state), "updates": each.update_count}
    )
    for name, attributes in plain_states(metric).items():
        before = made.get(name, {})
        found[name]["attributes"] = {
            key: value for key, value in attributes.items() if value is not before.get(key)
        }
    return found


def put_back_metric(metric: Any, saved: Any) -> None:
    """Load the values that `accumulated` returned into a metric."""
    if not isinstance(metric, Module):
        if hasattr(type(metric), "load_state_dict"):
            metric.load_state_dict(saved)
        else:
            vars(metric).update(saved)
        return
    modules = dict(metric.named_modules())
    for name, each in saved.items():
        for key, value in (each["states"] | each["attributes"]).items():
            setattr(modules[name], key, value)
        modules[name]._update_count = each["updates"]


def reset(module: Module) -> None:
    """Let each metric inside a module begin anew."""
    for each in module.modules():
        if hasattr(each, "update_count"):
            each.reset()  # type: ignore[operator]  # a metric has it


def _by_part(metric: Any, what: Callable[[Any], Any]) -> dict[str, Any]:
    """By place: `what(metric)` for each metric inside a module, itself included."""
    inside = list(metric.named_modules()) if isinstance(metric, Module) else []
    return {name: what(each) for name, each in inside if hasattr(each, "update_count")}


def _plain(metric: Any) -> dict[str, Any]:
    """The numbers and tensors among a metric's attributes that are not its states."""
    return {
        name: value
        for name, value in vars(metric).items()
        if isinstance(value, bool | int | float | Tensor)
        and name not in (*metric.metric_state, *CACHES)
    }
