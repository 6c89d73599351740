"""Schedulers that are called with the number of updates and epochs, such as timm's."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


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
        self.optimizer = scheduler.optimizer
        self.field = str(getattr(scheduler, "param_group_field", "lr"))
        self.last_epoch = 0
        self.epochs = 0

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
        self.last_epoch, self.epochs = state_dict["last_epoch"], state_dict["epochs"]
        self.scheduler.load_state_dict(state_dict["_schedulers"][0])
