"""The rates of optimizers that no schedule moves."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

from ...engine import State
from ..common import group_values
from .lr_schedule import LRSchedule


def rates(state: State[Any, Any]) -> dict[str, Any]:
    """The rates that are no metric: those of the engine's optimizers without an `LRSchedule`.

    They are read where rows are written, so that they cost nothing at a step. The name is `"lr"`,
    with several optimizers `"lr/critic"` for `objects["critic_optimizer"]`; with several parameter
    groups each has one, as in `LRSchedule`.
    """
    objects, handlers = state.engine.objects, state.engine.handlers.values()
    names = {name: each for name, each in objects.items() if isinstance(each, Optimizer)}
    schedules = [each for each in handlers if isinstance(each, LRSchedule) and each.field == "lr"]
    moved = [objects[each.object].optimizer for each in schedules if each.object in objects]
    found = dict[str, Any]()
    for name, optimizer in names.items():
        if all(optimizer is not each for each in moved):
            own = name.removesuffix("optimizer").rstrip("_")
            found |= group_values(optimizer, "lr", f"lr/{own}" if own and len(names) > 1 else "lr")
    return {name: rate for name, rate in found.items() if name not in state.metrics}
