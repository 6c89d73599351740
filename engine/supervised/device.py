"""Batches on their way to the device that computes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .nested import Nested, mapped


def to_device(nested: Nested, device: torch.device | str) -> Nested:
    """Move all tensors in nested tuples, lists, dicts, dataclasses and whatever has a `to`.

    Copies out of pinned memory do not wait for the device. Tensors that are there already are not
    copied, and other values stay as they are.

    >>> from torch.nn.utils.rnn import pack_sequence
    >>> batch = {"input": pack_sequence([torch.ones(2)]), "others": [torch.ones(2), 0.5], "id": "a"}
    >>> moved = to_device(batch, "meta")
    >>> moved["input"].data.device, moved["others"][0].device, moved["others"][1], moved["id"]
    (device(type='meta'), device(type='meta'), 0.5, 'a')
    """
    return _moved(nested, device, partial(Tensor.to, device=device, non_blocking=True))


class Transfer:
    """Copies batches to a device while it still computes the step before: `transfer(batch)`.

    The host runs ahead of the device. A copy on the computing stream would wait for all work that
    was queued before; this copy has its own stream, and only work that is queued later waits for
    it. It needs pinned memory, `DataLoader(pin_memory=True)`, and steps that do not read from the
    device. No batch is fetched early, so the position in the data and the random numbers stay the
    same.

    Only tensors in tuples, lists, dicts and dataclasses are copied so; an object with its own `to`
    is moved on the computing stream.
    """

    def __init__(self, device: torch.device | str) -> None:
        """Make the stream.

        Raises:
            ValueError: The device has no streams.
        """
        self.device = torch.device(device)
        streams: Any = getattr(torch, self.device.type, None)  # torch.cuda; torch.cpu's do nothing
        if not hasattr(streams, "Stream"):
            raise ValueError(f"Transfer({str(device)!r}): needs a device with streams, like 'cuda'")
        self.streams = streams
        self.stream = streams.Stream(self.device)

    def __call__(self, nested: Nested) -> Nested:
        """Move a batch like `to_device` does."""
        computing = self.streams.current_stream(self.device)
        moved = _moved(nested, self.device, partial(self._put, computing=computing))
        computing.wait_stream(self.stream)
        return moved

    def _put(self, tensor: Tensor, computing: Any) -> Tensor:
        if tensor.device.type != "cpu":  # its values may not be computed yet
            return tensor.to(self.device, non_blocking=True)
        with self.streams.stream(self.stream):
            moved = tensor.to(self.device, non_blocking=True)
        if moved is not tensor:
            moved.record_stream(computing)  # it must not be freed while that computes
        return moved


def _moved(nested: Nested, device: torch.device | str, put: Callable[[Tensor], Tensor]) -> Nested:
    def move(leaf: Any) -> Any:
        return put(leaf) if isinstance(leaf, Tensor) else leaf.to(device)

    return mapped(nested, move, _moves_itself)


def _moves_itself(nested: Any) -> bool:
    """True for tensors, but also for a PackedSequence and the encodings of tokenizers."""
    return callable(getattr(nested, "to", None))
