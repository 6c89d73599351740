"""One call for many tensors, and tensors on their way to a device.

Torch's optimizers and its clipping make the calls for many. Torch has no public names for them, so
each has its like in public calls, one for each tensor, for a torch that lacks the name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

NORM: Any = getattr(torch, "_foreach_norm", None)
MULTIPLY: Any = getattr(torch, "_foreach_mul_", None)
COPY: Any = getattr(torch, "_foreach_copy_", None)


def norm_of_each(tensors: Sequence[Tensor], kind: float) -> Sequence[Tensor]:
    """The norm of each tensor.

    >>> norm_of_each([torch.tensor([3.0, 4.0])], 2.0)
    (tensor(5.),)
    """
    if NORM is not None:
        return tuple(NORM(tensors, kind))
    return tuple(torch.linalg.vector_norm(each, kind) for each in tensors)


def multiply_each(tensors: Sequence[Tensor], factor: Tensor | float) -> None:
    """Multiply each tensor in place."""
    if MULTIPLY is not None:
        MULTIPLY(tensors, factor)
    else:
        for each in tensors:
            each.mul_(factor)


def copy_each(into: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    """Copy each of the given tensors into its place."""
    if COPY is not None:
        COPY(into, given)
    else:
        for one, other in zip(into, given, strict=True):
            one.copy_(other)


def moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on a device; the host waits only if that is the CPU.

    A copy to the CPU without a wait goes into pinned memory, which holds nothing yet when the host
    reads it.

    >>> moved(torch.ones(2), "meta").device.type
    'meta'
    """
    return tensor.to(device, non_blocking=torch.device(device).type != "cpu")
