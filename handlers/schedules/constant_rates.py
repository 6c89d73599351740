"""The rates of optimizers that no schedule moves."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

from ...engine import State
from ...engine.modules import optimizers_in
from ..common import group_values
from .lr_schedule import LRSchedule


def rates(state: State[Any, Any]) -> dict[str, Any]:
    """The rates that rows of this moment have, whether or not they were measured in it.

    A rate that a schedule moves is the metric that it has written, or before the first step what
    the optimizer has. The others are read where rows are written, so that they cost nothing at a
    step. Their name is `"lr"`, with several optimizers `"lr/critic"` for
    `objects["critic_optimizer"]`; with several parameter groups each has one, as in `LRSchedule`.
    """
    engine, metrics = state.engine, state.metrics
    by_schedules, moved = list[Optimizer](), dict[str, Any]()
    for each in engine.handlers.values():
        if isinstance(each, LRSchedule) and each.object in engine.objects:
            optimizer = engine.objects[each.object].optimizer
            moved |= group_values(optimizer, each.field, each.written_metric)
            by_schedules += optimizers_in(optimizer) if each.field == "lr" else []
    optimizers = {name: o for name, o in engine.objects.items() if isinstance(o, Optimizer)}
    found = dict[str, Any]()
    for name, optimizer in optimizers.items():
        if optimizer not in by_schedules:
            own = name.removesuffix("optimizer").rstrip("_")
            metric = f"lr/{own}" if own and len(optimizers) > 1 else "lr"
            for key, rate in group_values(optimizer, "lr", metric).items():
                if key not in metrics:
                    found[key] = rate
    for key, rate in moved.items():
        found[key] = metrics.get(key, rate)
    return found
