"""Optimizers that a LightningModule steps itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.optim import Optimizer

from ..events import EventEnum, Events
from ..state import under_way
from ..update import parameters_of

if TYPE_CHECKING:
    from ..state import State
    from .carried import Carried


class LightningEvents(EventEnum):
    """What the engine of a LightningModule announces besides the engine's events."""

    OTHER_STEP_COMPLETED = "other_step_completed"
    """In manual optimisation: a step of an optimizer that is not the first one."""


class ManualOptimizer:
    """An optimizer as `self.optimizers()` gives it: its steps are announced, so handlers act.

    Everything else is the optimizer's own.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        event: EventEnum,
        carried: Callable[[State[Any, Any]], Carried],
        before_step: Callable[[Optimizer], object] | None,
    ) -> None:
        self.optimizer = optimizer
        self._event = event
        self._carried = carried
        self._before_step = before_step

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
        step.optimizer, step.is_skipped, step.compiled = self.optimizer, False, None
        state.fire(Events.BACKWARD_COMPLETED)
        if step.is_skipped:
            step.is_skipped, step.skipped_at = False, state.iteration
            state.fire(Events.STEP_SKIPPED)
            state.metrics["skipped_steps"] = state.counts[Events.STEP_SKIPPED]
        else:
            if self._before_step is not None:
                self._before_step(self.optimizer)
            state.fire(Events.GRADIENTS_READY)
            self.optimizer.step()
            state.fire(self._event)
        self._carried(state).note_step(parameters_of(self.optimizer))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients."""
        self.optimizer.zero_grad(set_to_none)
        if (state := under_way.get()) is not None and state.training:
            self._carried(state).note_step(parameters_of(self.optimizer))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.optimizer, name)


class Manual:
    """The `optimizers` and `manual_backward` of a LightningModule."""

    def __init__(
        self,
        module: Any,
        hooks: set[str],
        optimizers: list[Optimizer],
        recall: Callable[[State[Any, Any]], Carried],
    ) -> None:
        self._module = module
        self._hooks = hooks
        self._optimizers = optimizers
        self._recall = recall
        events = [Events.STEP_COMPLETED, LightningEvents.OTHER_STEP_COMPLETED]
        before = module.on_before_optimizer_step if "on_before_optimizer_step" in hooks else None
        self._wrapped = [
            ManualOptimizer(each, events[number > 0], recall, before)
            for number, each in enumerate(optimizers)
        ]

    def __deepcopy__(self, memo: object) -> Manual:
        """A copy of the module, as for an average of its weights, has the same optimizers."""
        return self

    def optimizers(self, use_pl_optimizer: bool = True) -> Any:
        """The optimizer, or the list of them."""
        found = self._wrapped if use_pl_optimizer else self._optimizers
        return found[0] if len(found) == 1 else found

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Compute gradients in manual optimisation."""
        if self._module.automatic_optimization:
            raise RuntimeError("manual_backward needs automatic_optimization = False in __init__")
        if "on_before_backward" in self._hooks:
            self._module.on_before_backward(loss)
        self._module.backward(loss, *args, **kwargs)
        if (state := under_way.get()) is not None:
            self._recall(state).note_backward()
        if "on_after_backward" in self._hooks:
            self._module.on_after_backward()
