"""ignite's supervised engines, made as engines of the bridge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ignite.engine
import torch
from ignite.metrics import Metric

from .engine import Engine


def create_supervised_trainer(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *args: Any,
    exact: bool = False,
    **kwargs: Any,
) -> Engine:
    """Ignite's `create_supervised_trainer`, with its arguments, for an engine of the bridge.

    The model and the optimizer are among the engine's objects, and so is a GradScaler.

    Raises:
        ValueError: `deterministic=True`: ignite's DeterministicEngine runs a loop of its own.
    """
    if kwargs.get("deterministic"):
        raise ValueError(
            "deterministic=True makes ignite's DeterministicEngine, which runs a loop of its own: "
            "take create_supervised_trainer of ignite.engine for it. This engine continues exactly "
            "by add(Checkpoint(..., resume=True)), and seed_everything() seeds it"
        )
    made: Any = ignite.engine.create_supervised_trainer(model, optimizer, *args, **kwargs)
    objects: dict[str, Any] = {"model": model, "optimizer": optimizer}
    scaler = getattr(made.state, "scaler", None) or kwargs.get("scaler")
    if hasattr(scaler, "state_dict"):
        objects["scaler"] = scaler
    return _like(made, objects, exact)


def create_supervised_evaluator(
    model: torch.nn.Module,
    metrics: Mapping[str, Metric] | None = None,
    *args: Any,
    exact: bool = False,
    **kwargs: Any,
) -> Engine:
    """Ignite's `create_supervised_evaluator`, with its arguments, for an engine of the bridge."""
    made: Any = ignite.engine.create_supervised_evaluator(model, None, *args, **kwargs)
    evaluator = _like(made, {}, exact)
    for name, metric in (metrics or {}).items():
        metric.attach(evaluator, name)
    return evaluator


def _like(made: Any, objects: dict[str, Any], exact: bool) -> Engine:
    """An engine of the bridge with the process function and the state of an ignite engine."""
    engine = Engine(made._process_function, objects=objects, exact=exact)
    engine.state = made.state
    return engine
