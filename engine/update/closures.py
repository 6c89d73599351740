"""Optimizers that evaluate the loss several times a step, such as LBFGS."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import Optimizer

from .. import ranks
from .gradients import multiply

if TYPE_CHECKING:
    from .update import Update

Closure = Callable[[], Tensor]


def needs_closure(optimizer: Optimizer) -> bool:
    """True for an optimizer whose `step` cannot do without a closure.

    >>> needs_closure(torch.optim.LBFGS([torch.nn.Parameter(torch.zeros(1))]))
    True
    """
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def checked(closure: Closure | None, optimizer: Optimizer) -> Closure:
    """The closure itself.

    Raises:
        TypeError: There is none.
    """
    if closure is None:
        raise TypeError(
            f"{type(optimizer).__name__} evaluates the loss several times a step: pass "
            "update(state, loss, closure=...), a function that computes the loss again"
        )
    return closure


@dataclass
class Evaluation:
    """What an optimizer calls for the loss and gradients of a window, at whatever weights.

    The first call gives what there is already; later ones evaluate the window's batches again.
    """

    update: Update
    closures: list[Closure]
    loss: Tensor | float
    """The sum of the losses that there were."""
    factor: Tensor | float | None
    """What makes their mean of it."""
    is_first: bool = True

    def __call__(self) -> Tensor:
        """The loss of the window; its gradients are in place."""
        if not self.is_first:
            self._evaluate()
        self.is_first = False
        mean = torch.as_tensor(self.loss if self.factor is None else self.loss * self.factor)
        # Over ranks, which then search along the same line.
        return torch.as_tensor(ranks.total(mean)) / ranks.world_size()

    def _evaluate(self) -> None:
        self.update.clear()
        self.loss = 0.0
        for closure in self.closures:
            loss = closure()
            loss.backward()
            self.loss = self.loss + loss.detach()
        if self.factor is not None:
            multiply(self.update.optimizer, self.factor)
