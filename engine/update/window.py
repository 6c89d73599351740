"""Accumulation windows: what one step's gradient is the mean over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .. import ranks
from .closures import Evaluation, checked
from .gradients import parameters_of

if TYPE_CHECKING:
    from ..state.state import State
    from .closures import Closure
    from .update import Update


@dataclass(slots=True, eq=False)
class Window:
    """An open accumulation window: what the gradients at hand are a sum over."""

    update: Update
    calls: int = 0
    """Micro-batches so far, those without a loss included."""
    count: int = 0
    """Micro-batches that had a loss."""
    weight: Tensor | float | None = None
    scale: Tensor | None = None
    """What its losses are multiplied by, whatever a scaler shared with others does meanwhile."""
    is_off: bool = False
    """True if the forward pass at hand leaves averaging over ranks to a later backward pass."""
    is_own: bool = False
    """True if the gradients are this rank's own, because the last backward pass left them so."""
    loss: Tensor | float = 0.0
    """The sum of the losses, for an optimizer that asks for it."""
    closures: list[Closure] = field(default_factory=list)

    @property
    def length(self) -> int:
        """The micro-batches of a full window."""
        return self.update.accumulate

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a micro-batch or of a part of one."""
        scaler = self.update.scaler
        if scaler is not None:
            if self.scale is None:
                self.scale = scaler.scale(torch.ones((), device=loss.device))
            loss = loss * self.scale
        loss.backward()
        self.is_own = self.is_off

    def add(
        self, loss: Tensor | None, weight: Tensor | float | None, closure: Closure | None
    ) -> None:
        """Count one micro-batch, whose gradients are there if it has a loss."""
        self.calls += 1
        if loss is None:
            self._check_ranks()
            return
        if self.count and (weight is None) != (self.weight is None):
            raise ValueError(
                "some micro-batches of this accumulation window have a weight= and some have none; "
                "give all of them the number of their targets, or none of them"
            )
        self.count += 1
        if weight is not None:
            self.weight = weight if self.weight is None else self.weight + weight
        if self.update.needs_closure:
            self.loss = self.loss + loss.detach()
            self.closures.append(checked(closure, self.update.optimizer))

    def close(self, state: State[Any, Any]) -> None:
        """Step with the mean over what the window holds; do nothing if it holds nothing."""
        update, sync = self.update, self.update.sync
        del state.step_under_way.windows[id(update)]
        at_close = sync is not None and sync.at_close
        if not (ranks.any_rank(self.count > 0) if at_close else self.count):
            return
        if sync is not None and (self.is_own or at_close):
            sync.average()
        factor = self._factor(at_close)
        evaluation = None
        if self.closures:
            evaluation = Evaluation(update, self.closures, self.loss, factor)
        update.step(state, factor, evaluation)

    def copied(self) -> Callable[[], Window]:
        """A copy of the window and its gradients, and what puts it back."""
        parameters = parameters_of(self.update.optimizer)
        kept = [None if each.grad is None else each.grad.clone() for each in parameters]
        copy = replace(self, closures=list(self.closures))

        def put_back() -> Window:
            for parameter, gradient in zip(parameters, kept, strict=True):
                parameter.grad = None if gradient is None else gradient.clone()
            return replace(copy, closures=list(copy.closures))

        return put_back

    def _factor(self, at_close: bool) -> Tensor | float | None:
        """What makes the mean of the gradients' sum."""
        factor: Tensor | float | None
        if self.weight is None and not at_close:
            factor = None if self.count == 1 else 1 / self.count
        else:
            targets = self._targets(at_close)
            # Gradients are averaged over ranks, so that their sum is this many times as large.
            factor = ranks.world_size() / (targets + (targets == 0))
            factor = factor.reshape(()) if isinstance(factor, Tensor) else factor
        if self.scale is None or self.update.scaler is None:
            return factor
        now = self.update.scaler.scale(torch.ones_like(self.scale))  # what unscaling divides by
        return now / self.scale * (1.0 if factor is None else factor)

    def _targets(self, at_close: bool) -> Tensor | float:
        amount = self.count if self.weight is None else self.weight
        if at_close:  # a rank without a loss does not know what others give
            (place,) = {each.device for each in parameters_of(self.update.optimizer)[:1]}
            amount = torch.as_tensor(amount, dtype=torch.float64, device=place).reshape(())
        return ranks.total(amount)

    def _check_ranks(self) -> None:
        sync = self.update.sync
        if ranks.is_distributed() and not (sync is not None and sync.at_close):
            raise RuntimeError(
                "a micro-batch without a loss: the other ranks may have one, and would wait for "
                "this one's gradients; pass model= and sync='close' to Update, or sync='close' to "
                "supervised, or give a loss of zero"
            )
