"""One call for many tensors, and tensors on their way to a device.

Torch's optimizers and its clipping make the calls for many. Torch has no public names for them, so
each has its like in public calls, one for each tensor, for a torch that lacks the name. They stand
here without a function around them, which would be one call more in each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Norms = Callable[[Sequence[Tensor], float], Sequence[Tensor]]
Multiply = Callable[[Sequence[Tensor], Tensor | float], None]
Copy = Callable[[Sequence[Tensor], Sequence[Tensor]], None]


def _norm_of_each(tensors: Sequence[Tensor], kind: float) -> Sequence[Tensor]:
    return [torch.linalg.vector_norm(each, kind) for each in tensors]


def _multiply_each(tensors: Sequence[Tensor], factor: Tensor | float) -> None:
    for each in tensors:
        each.mul_(factor)


def _copy_each(into: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    for one, other in zip(into, given, strict=True):
        one.copy_(other)


norm_of_each: Norms = getattr(torch, "_foreach_norm", _norm_of_each)
"""The norm of each tensor, of a kind such as 2.0."""
multiply_each: Multiply = getattr(torch, "_foreach_mul_", _multiply_each)
"""Multiply each tensor in place."""
copy_each: Copy = getattr(torch, "_foreach_copy_", _copy_each)
"""Copy each of the given tensors into its place, which comes first."""


def moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on a device; the host waits only if that is the CPU.

    A copy to the CPU without a wait goes into pinned memory, which holds nothing yet when the host
    reads it.

    >>> moved(torch.ones(2), "meta").device.type
    'meta'
    """
    return tensor.to(device, non_blocking=torch.device(device).type != "cpu")
