"""Optimizers that a LightningModule steps itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

from ....engine import Events
from ....engine.state import under_way
from ....engine.update import Gradients
from .trainer import LightningEvents, TrainerView


class ManualOptimizer:
    """An optimizer as `self.optimizers()` gives it: its steps are announced, so handlers act.

    Everything else is the optimizer's own.
    """

    def __init__(self, optimizer: Optimizer, trainer: TrainerView) -> None:
        self.optimizer = optimizer
        self._trainer = trainer

    def step(self, closure: Callable[[], Any] | None = None) -> None:
        """Announce the gradients, step, and announce the step; a handler may skip it."""
        if closure is not None:
            raise ValueError(
                "optimizer.step(closure) is not taken in manual optimisation: call "
                "self.manual_backward(loss) first, and then optimizer.step()"
            )
        state = under_way.get()
        if state is None or not state.training:
            raise RuntimeError("optimizer.step() was called outside of training_step")
        step = state.step_under_way
        step.gradients, step.is_skipped = Gradients(self.optimizer), False
        state.fire(Events.BACKWARD_COMPLETED)
        if step.is_skipped:
            step.is_skipped, step.skipped_at = None, state.iteration
            state.fire(Events.STEP_SKIPPED)
            state.metrics["skipped_steps"] = state.counts[Events.STEP_SKIPPED]
            return
        step.is_skipped = None
        self._trainer.hooks.call("on_before_optimizer_step", self.optimizer)
        state.fire(Events.GRADIENTS_READY)
        self.optimizer.step()
        step.gradients.tensors = ()
        is_first = self.optimizer is self._trainer.optimizers[0]
        state.fire(Events.STEP_COMPLETED if is_first else LightningEvents.OTHER_STEP_COMPLETED)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.optimizer, name)


def optimizers(trainer: TrainerView, use_pl_optimizer: bool = True) -> Any:
    """The optimizer, or the list of them: the `optimizers` of a LightningModule."""
    found: list[Any] = list(trainer.optimizers)
    if use_pl_optimizer:
        found = [ManualOptimizer(each, trainer) for each in found]
    return found[0] if len(found) == 1 else found
