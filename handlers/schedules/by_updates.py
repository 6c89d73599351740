"""Schedulers that are told how many updates and epochs there were, such as timm's."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


@runtime_checkable
class UpdateScheduler(Protocol):
    """What timm's schedulers can do."""

    optimizer: Optimizer

    def step_update(self, num_updates: int, metric: float | None = None) -> None:
        """Go to where the schedule is after so many updates."""

    def step(self, epoch: int, metric: float | None = None) -> None:
        """Go to where the schedule is after so many epochs."""

    def state_dict(self) -> dict[str, Any]:
        """Settings and progress."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Take those over."""


class ByUpdates(LRScheduler):
    """A torch scheduler made of one that wants to be told how far the run is."""

    def __init__(self, scheduler: UpdateScheduler) -> None:
        # Not LRScheduler's own: it would set the rates. It is one for those who look at its state.
        self.scheduler = scheduler
        self.optimizer = scheduler.optimizer
        self.field = str(getattr(scheduler, "param_group_field", "lr"))
        self.last_epoch = 0
        self.epochs = 0

    def step(self, epoch: int | None = None) -> None:
        """Say that an update more was made."""
        self.last_epoch += 1
        self.scheduler.step_update(self.last_epoch)

    def step_epoch(self, epoch: int, metric: float | None = None) -> None:
        """Say that so many epochs are over."""
        self.epochs = epoch
        self.scheduler.step(epoch, metric)

    def go_to(self, saved: dict[str, Any]) -> None:
        """Go to where another one was when it gave this state."""
        self.last_epoch, self.epochs = saved["last_epoch"], saved["epochs"]
        if self.epochs:
            self.scheduler.step(self.epochs)
        if self.last_epoch:
            self.scheduler.step_update(self.last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """How far it is, and the state of the scheduler inside."""
        inner = self.scheduler.state_dict()
        return {"last_epoch": self.last_epoch, "epochs": self.epochs, "_schedulers": [inner]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.last_epoch, self.epochs = state_dict["last_epoch"], state_dict["epochs"]
        self.scheduler.load_state_dict(state_dict["_schedulers"][0])
