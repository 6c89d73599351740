"""Accumulation windows: the micro-batches over which a step's gradient is the mean."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import is_not
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .. import ranks
from ..modules import optimizers_in, parameters_of
from .gradients import backward, norm_of

if TYPE_CHECKING:
    from torch.amp import GradScaler

    from .gradients import Gradients
    from .update import Update

Closure = Callable[[], Tensor]


@dataclass(slots=True, eq=False)
class Window:
    """An open accumulation window: counts the micro-batches whose gradients are summed up."""

    scaler: GradScaler | None = None
    calls: int = 0
    """Micro-batches so far, those without a loss included."""
    count: int = 0
    """Micro-batches that had a loss."""
    weight: Tensor | float | None = None
    """The sum of their weights."""
    scale: Tensor | None = None
    """The factor of all losses of this window, also if the scaler changes its scale meanwhile."""
    defers_reduce: bool = False
    """True if the current forward pass leaves averaging over ranks to a later backward pass."""
    needs_reduce: bool = False
    """True if the gradients are not yet averaged over ranks."""
    loss: Tensor | float = 0.0
    """The sum of the losses, for an optimizer with a closure."""
    closures: list[Closure] = field(default_factory=list)
    is_held: bool = False
    """True if no micro-batch closes it, since whoever has opened it does."""
    point: list[float] | None = None
    """Where the weights are for which an optimizer's closure returns the existing loss."""
    targets: Callable[[], Tensor | float] | None = None
    """Waits for the weights of all ranks, whose sum is under way."""

    def backward(self, loss: Tensor, retain_graph: bool = False) -> None:
        """Add the gradients of a micro-batch or of a part of one."""
        if self.scaler is not None:
            if self.scale is None:
                self.scale = self.scaler.scale(torch.ones((), device=loss.device))
            loss = loss * self.scale
        backward(loss, retain_graph)
        self.needs_reduce = self.defers_reduce

    def add(
        self,
        loss: Tensor | None,
        weight: Tensor | float | None = None,
        closure: Closure | None = None,
    ) -> None:
        """Count one micro-batch; its backward pass is separate."""
        has_weight, has_closure = self.weight is not None, bool(self.closures)
        is_odd = (weight is not None, closure is not None) != (has_weight, has_closure)
        if loss is not None and self.count and is_odd:
            raise ValueError(
                "some micro-batches of this accumulation window have a weight= and some have none, "
                "or a closure=; give each of them to all micro-batches, or to none"
            )
        self.calls += 1
        if loss is None:
            return
        self.count += 1
        if weight is not None:
            self.weight = weight if self.weight is None else self.weight + weight
        if closure is not None:
            self.loss = self.loss + loss.detach()
            self.closures.append(closure)

    def count_targets(self, own: Tensor | float) -> None:
        """Begin to add up the weights of all ranks; `own` is the sum of this rank's window."""
        if isinstance(own, Tensor) and ranks.is_distributed():
            own = _on(own.device, own)  # other ranks may give another type, or a plain number
        self.targets = ranks.begin_total(own, group=ranks.data_group())

    def factor(self, device: torch.device | None) -> Tensor | float | None:
        """The factor that makes the mean of the gradients' sum; None for 1.

        Args:
            device: Where to add up the micro-batches of all ranks, if ranks skip different ones.
        """
        factor: Tensor | float | None
        if self.weight is None and device is None:
            factor = None if self.count == 1 else 1 / self.count
        else:
            amount = self.count if self.weight is None else self.weight
            if device is not None:  # a rank without a loss does not know what type others have
                amount = _on(device, amount)
            group = ranks.data_group()
            targets = self.targets() if self.targets else ranks.total(amount, group=group)
            # Gradients are averaged over these ranks, so their sum is this many times as large.
            factor = ranks.world_size(group) / (targets + (targets == 0))
            factor = factor.reshape(()) if isinstance(factor, Tensor) else factor
        if self.scale is None or self.scaler is None:
            return factor
        now = self.scaler.scale(torch.ones_like(self.scale))  # what unscaling divides by
        return now / self.scale * (1.0 if factor is None else factor)

    def evaluate(
        self, gradients: Gradients, factor: Tensor | float | None, clear: Callable[[], None]
    ) -> Tensor:
        """The mean loss at the current weights, with its gradients, for an optimizer's closure.

        The first call returns the loss that is there already, unless the optimizer has written
        weights or gradients before it, as SAM does; later ones compute the window again.

        Args:
            gradients: Those of the optimizer.
            factor: Makes the mean of a sum over the window; None for 1.
            clear: Clears the gradients.
        """
        weights = parameters_of(gradients.optimizer)
        if self.point != point_of(weights):
            clear()
            self.loss = 0.0
            for closure in self.closures:
                self._compute_again(closure, weights)
            if factor is not None:
                gradients.look().scale(factor)
        self.point = None
        mean = torch.as_tensor(self.loss if factor is None else self.loss * factor)
        # The mean over ranks too, so that all of them search along the same line.
        group = ranks.data_group()
        return torch.as_tensor(ranks.total(mean, group=group)) / ranks.world_size(group)

    def _compute_again(self, closure: Closure, weights: list[Tensor]) -> None:
        before = [each.grad for each in weights]
        with torch.enable_grad():
            loss: Any = closure()
        if not isinstance(loss, Tensor) or any(map(is_not, before, (e.grad for e in weights))):
            raise TypeError(
                "closure= needs a function that computes the loss again and returns it, and leaves "
                f"zero_grad() and backward() to the Update; this one returned {loss!r}"
            )
        loss.backward()
        self.loss = self.loss + loss.detach()


def point_of(weights: list[Tensor]) -> list[float]:
    """Numbers that change if an optimizer writes weights, also by `.data`, or gradients."""
    numbers = [float(norm_of([each.detach() for each in weights]))]
    for each in weights:
        gradient = each.grad
        numbers += each._version, id(gradient), 0 if gradient is None else gradient._version
    return numbers


def check_loss_weights(weight: Tensor | float | None, *, has_loss: bool = True) -> None:
    """Refuse weights of different kinds on different ranks, since their messages would not match.

    All ranks call this at the same micro-batch. A rank without a loss fits any other rank.

    Raises:
        ValueError: Some ranks give a weight and some none, or a number and some a tensor elsewhere.
    """
    kind = None if weight is None else weight.device.type if isinstance(weight, Tensor) else "cpu"
    given = f"loss with a weight on {kind}" if kind else "loss without a weight"
    kinds = ranks.gathered(given if has_loss else None, group=ranks.data_group())
    if len({*kinds} - {None}) > 1:
        listed = ", ".join(f"rank {rank}: {each}" for rank, each in enumerate(kinds) if each)
        raise ValueError(
            "the ranks give update(state, loss, weight=...) different kinds of weight, and their "
            f"messages would not match ({listed}). On all ranks give a number, or a tensor on the "
            "model's device, or none: the same everywhere"
        )


def _on(device: torch.device, amount: Tensor | float) -> Tensor:
    if isinstance(amount, Tensor):
        return amount.to(device, torch.float64).reshape(())
    return torch.full((), amount, dtype=torch.float64, device=device)  # made there, without a wait


def by_share(
    share: float,
    loss: Tensor | None,
    weight: Tensor | float | None,
    closure: Closure | None = None,
) -> tuple[Any, Tensor | float | None, Closure | None]:
    """Loss, weight and closure of a micro-batch, by the share of this rank in all samples of it.

    A loss with a weight is a sum, which needs no share other than 0.

    >>> by_share(0.5, torch.tensor(3.0), None)[:2], by_share(0.5, torch.tensor(3.0), 7)[:2]
    ((tensor(1.5000), None), (tensor(3.), 7))
    """
    if weight is not None and share:
        share = 1.0
    if share == 1:
        return loss, weight, closure
    return (
        None if loss is None else loss * share,
        None if weight is None else weight * share,
        None if closure is None else lambda: closure() * share,
    )


def needs_closure(optimizer: Optimizer) -> bool:
    """True for an optimizer that evaluates the loss several times a step, such as LBFGS.

    >>> needs_closure(torch.optim.LBFGS([torch.nn.Parameter(torch.zeros(1))]))
    True
    """
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def takes_closure(update: Update) -> bool:
    """True if a closure may matter to the optimizer of an update: steps of torch only call it.

    Raises:
        ValueError: The update cannot give it one.
    """
    optimizer = update.optimizer
    homes = [str(type(each).step.__module__) for each in optimizers_in(optimizer)]
    if not update.needs_closure and all(each.startswith("torch.optim.") for each in homes):
        return False
    is_plain = update.scaler is None and update.compiled is None and not update.averages_at_close
    if not (is_plain and "closure" in inspect.signature(optimizer.step).parameters):
        raise ValueError(
            f"{type(optimizer).__name__} evaluates the loss several times a step; that works "
            "neither with a gradient scaler nor with sync='close' nor with compile=, nor for "
            "several optimizers of one step, nor if its step() has no closure="
        )
    return True
