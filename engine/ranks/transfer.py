"""Tensors that one rank sends to another, over the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .groups import on_cpu

if TYPE_CHECKING:
    from torch import Tensor


def send(tensor: Tensor, to: int) -> None:
    """Send a tensor that lies on the CPU to another rank, which has to receive it."""
    import torch.distributed as dist

    dist.send(_bytes(tensor.contiguous()), to, group=on_cpu())


def receive(into: Tensor, source: int) -> None:
    """Wait for what a rank sends, in a contiguous tensor of the same type and shape on the CPU."""
    import torch.distributed as dist

    dist.recv(_bytes(into), source, group=on_cpu())


def _bytes(tensor: Tensor) -> Tensor:
    # Not every type can be sent.
    import torch

    return tensor.detach().reshape(-1).view(torch.uint8)
