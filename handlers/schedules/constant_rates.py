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
    objects, handlers = state.engine.objects, state.engine.handlers.values()
    names = {name: each for name, each in objects.items() if isinstance(each, Optimizer)}
    schedules = [each for each in handlers if isinstance(each, LRSchedule)]
    moved, constant = dict[str, Any](), dict[str, Any]()
    by_schedules = list[Optimizer]()
    for schedule in schedules:
        if schedule.object in objects:
            optimizer = objects[schedule.object].optimizer
            moved |= group_values(optimizer, schedule.field, schedule.written_metric)
            by_schedules += optimizers_in(optimizer) if schedule.field == "lr" else []
    for name, optimizer in names.items():
        if all(optimizer is not each for each in by_schedules):
            own = name.removesuffix("optimizer").rstrip("_")
            constant |= group_values(
                optimizer, "lr", f"lr/{own}" if own and len(names) > 1 else "lr"
            )
    found = {name: rate for name, rate in constant.items() if name not in state.metrics}
    return found | {name: state.metrics.get(name, rate) for name, rate in moved.items()}
