"""Torch schedulers around what is none: schedules of pieces, and schedulers like timm's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..common import read, write
from .schedule import Plan, Schedule


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
        self.schedule: str = " | ".join(map(repr, schedules))
        self.total = total
        self.field = field
        self.course: list[float] | None = None
        """Since a change of the end: the step of the change, its place in the plan, the new end."""
        self._schedules = schedules
        self._take_groups(optimizer.param_groups)
        super().__init__(optimizer)

    @property
    def end(self) -> float | None:
        """The step at which the schedule ends, if that depends on the run."""
        return self.course[2] if self.course else self.total

    def end_at(self, end: int) -> None:
        """Go through the rest of the plan up to this step, without a jump.

        Where nothing is left of it, the plan is made anew: no run stays at the end of its schedule.
        """
        if self.total is not None and (place := self._place(self.last_epoch)) < self.total:
            self.course = [self.last_epoch, place, end]
        else:
            self.total, self.course = end, None
            self._plans = self._planned()

    @property
    def is_at_joint(self) -> bool:
        """True if a piece ends here and the next one begins."""
        if self.course is None:
            return any(self.last_epoch in plan.joints for plan in self._plans)
        before, now = self._place(self.last_epoch - 1), self._place(self.last_epoch)
        return any(before < joint <= now for plan in self._plans for joint in plan.joints)

    def state_dict(self) -> dict[str, Any]:
        """The schedule as text, and its progress."""
        own = ("_plans", "_schedules")
        return {key: each for key, each in super().state_dict().items() if key not in own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a saved state, with the plan that it had."""
        super().load_state_dict(state_dict)
        self._plans = self._planned()

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
        groups = self.optimizer.param_groups
        place = self.last_epoch if self.course is None else self._place(self.last_epoch)
        try:
            pairs = zip(self.bases, self._plans, groups, strict=True)
            return [base * plan(place) for base, plan, _ in pairs]
        except ValueError:
            if len(self.bases) == len(groups):
                raise
        self._take_groups(groups)  # one was added
        return self._values()

    def _planned(self) -> list[Plan]:
        plans = [schedule.plan(self.total) for schedule in self._schedules]
        return plans if len(plans) > 1 else plans * len(self.bases)

    def _place(self, step: int) -> float:
        """The place in the plan after so many steps."""
        if self.course is None or self.total is None:
            return step
        begin, place, end = self.course
        if step >= end:
            return self.total
        return place + (self.total - place) * (step - begin) / (end - begin)

    def _take_groups(self, groups: Sequence[dict[str, Any]]) -> None:
        """Note the values that groups were given, also of those that were added in mid-run."""
        if len(self._schedules) not in (1, len(groups)):
            raise ValueError(
                f"there are {len(self._schedules)} schedules and {len(groups)} parameter groups; "
                "give one schedule for all groups, or one for each"
            )
        first = f"initial_{self.field}"
        for group in groups:
            group[first] = group.get(first, read(group, self.field))
        self.bases: list[Any] = [group[first] for group in groups]
        self._plans = self._planned()


@runtime_checkable
class UpdateScheduler(Protocol):
    """The methods of timm's schedulers."""

    optimizer: Optimizer

    def step_update(self, num_updates: int, metric: float | None = None) -> None:
        """Set the rates for the step after `num_updates` updates."""

    def step(self, epoch: int, metric: float | None = None) -> None:
        """Set the rates for the epoch after `epoch` epochs."""

    def state_dict(self) -> dict[str, Any]:
        """Settings and progress."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Load settings and progress."""


class ByUpdates(LRScheduler):
    """A torch scheduler around an `UpdateScheduler`."""

    def __init__(self, scheduler: UpdateScheduler) -> None:
        # LRScheduler.__init__ would set the rates. The base class only gives the type.
        self.scheduler = scheduler
        self.optimizer: Optimizer = scheduler.optimizer
        self.field: str = str(getattr(scheduler, "param_group_field", "lr"))
        self.last_epoch = 0
        self.epochs: int = 0

    def step(self, epoch: int | None = None) -> None:
        """Step the scheduler after one more update."""
        self.last_epoch += 1
        self.scheduler.step_update(self.last_epoch)

    def step_epoch(self, epoch: int, metric: float | None = None) -> None:
        """Step the scheduler after `epoch` epochs."""
        self.epochs = epoch
        self.scheduler.step(epoch, metric)

    def go_to(self, saved: dict[str, Any]) -> None:
        """Go to the progress in a saved state, with the script's settings."""
        self.last_epoch, self.epochs = saved["last_epoch"], saved["epochs"]
        if self.epochs:
            self.scheduler.step(self.epochs)
        if self.last_epoch:
            self.scheduler.step_update(self.last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """The progress, and the state of the scheduler inside."""
        inner = self.scheduler.state_dict()
        return {"last_epoch": self.last_epoch, "epochs": self.epochs, "_schedulers": [inner]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load progress, and the state of the scheduler inside."""
        self.last_epoch: int = state_dict["last_epoch"]
        self.epochs = state_dict["epochs"]
        self.scheduler.load_state_dict(state_dict["_schedulers"][0])
