"""The gradients that an optimizer is about to use."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """What an optimizer updates."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def gradients_of(optimizer: Optimizer) -> list[Tensor]:
    """The gradients that there are."""
    return [
        parameter.grad
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
    ]


def clear(optimizer: Optimizer) -> None:
    """Do what `optimizer.zero_grad()` does, without what that costs: several times as much."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def multiply(optimizer: Optimizer, factor: Tensor | float) -> None:
    """Scale all gradients in place."""
    # torch's optimizers use it too; there is no other way to scale them all at once.
    if gradients := gradients_of(optimizer):
        torch._foreach_mul_(gradients, factor)  # pyright: ignore


def norm(gradients: list[Tensor], kind: float = 2.0) -> Tensor:
    """The norm of all gradients together, which stays on their device.

    >>> norm([torch.tensor([3.0]), torch.tensor([4.0])])
    tensor(5.)
    """
    if not gradients:
        return torch.zeros(())
    dense = [each._values() if each.is_sparse else each for each in gradients]
    place = dense[0].device
    each_norm = torch._foreach_norm(dense, kind)  # pyright: ignore  # as torch's clipping does
    norms = [each.to(place, non_blocking=True) for each in each_norm]
    return torch.as_tensor(torch.linalg.vector_norm(torch.stack(norms), kind))


def is_broken(gradients: list[Tensor]) -> Tensor:
    """1.0 if a gradient holds NaN or infinity, else 0.0, as a tensor on their device.

    >>> is_broken([torch.zeros(3), torch.tensor([1.0, float("nan")])])
    tensor(1.)
    """
    # The largest magnitude, unlike a sum of squares, is finite wherever all elements are.
    return (~norm(gradients, float("inf")).isfinite()).float()
