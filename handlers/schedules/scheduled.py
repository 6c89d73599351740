"""A torch scheduler that follows a schedule of pieces, for any field of the parameter groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..common import read, write
from .schedule import Schedule


class Scheduled(LRScheduler):
    """Multiplies a field of each group by a schedule's factor; its state is text and numbers.

    Args:
        optimizer: The optimizer whose groups are changed.
        schedules: One for all groups, or one for each.
        total: The number of steps of the run, if the schedules depend on it.
        field: `"lr"`, `"weight_decay"`, `"momentum"`, or a place in a tuple, such as `"betas.0"`.

    Raises:
        ValueError: The number of schedules is neither 1 nor that of the groups, or the groups
            have no such field.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedules: Sequence[Schedule],
        total: int | None,
        field: str = "lr",
    ) -> None:
        groups = optimizer.param_groups
        if len(schedules) not in (1, len(groups)):
            raise ValueError(
                f"there are {len(schedules)} schedules and {len(groups)} parameter groups; give "
                "one schedule for all groups, or one for each"
            )
        self.schedule = " | ".join(map(repr, schedules))
        self.total = total
        self.field = field
        self._plans = [schedule.plan(total) for schedule in schedules]
        if len(schedules) == 1:
            self._plans *= len(groups)
        for group in groups:
            first = f"initial_{field}"
            group[first] = group.get(first, read(group, field))
        self.bases = [group[f"initial_{field}"] for group in groups]
        super().__init__(optimizer)

    @property
    def is_at_joint(self) -> bool:
        """True if a piece ends here and the next one begins."""
        return any(self.last_epoch in plan.joints for plan in self._plans)

    def state_dict(self) -> dict[str, Any]:
        """The schedule as text, and its progress."""
        return {key: each for key, each in super().state_dict().items() if key != "_plans"}

    def get_lr(self) -> list[float | Tensor]:
        """The rates of the next step; unchanged if the schedule moves another field."""
        if self.field == "lr":
            return list(self._values())
        return [group["lr"] for group in self.optimizer.param_groups]

    def step(self, epoch: int | None = None) -> None:
        """Go on by one step."""
        super().step(epoch)
        if self.field != "lr":
            for group, value in zip(self.optimizer.param_groups, self._values(), strict=True):
                write(group, self.field, value)

    def _values(self) -> list[Any]:
        pairs = zip(self.bases, self._plans, strict=True)
        return [base * plan(self.last_epoch) for base, plan in pairs]
