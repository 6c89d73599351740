"""Batches on their way to the device that computes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from ..modules import moved
from .nested import Nested, map_tensors

MIB = 2**20


def to_device(nested: Nested, device: torch.device | str) -> Nested:
    """Move all tensors in nested tuples, lists, dicts, dataclasses and whatever has a `to`.

    Copies out of pinned memory do not wait for the device; copies to the CPU do. Tensors that are
    there already are not copied, and other values stay as they are.

    >>> from torch.nn.utils.rnn import pack_sequence
    >>> batch = {"input": pack_sequence([torch.ones(2)]), "others": [torch.ones(2), 0.5], "id": "a"}
    >>> there = to_device(batch, "meta")
    >>> there["input"].data.device, there["others"][0].device, there["others"][1], there["id"]
    (device(type='meta'), device(type='meta'), 0.5, 'a')
    """
    return _moved(nested, device, partial(moved, device=device))


class Transfer:
    """Copies batches to a device while it still computes the step before: `transfer(batch)`.

    The host runs ahead of the device. A copy on the computing stream would wait for all work that
    was queued before; this copy has its own stream, and only work that is queued later waits for
    it. That needs steps that do not read from the device. No batch is fetched early, so the
    position in the data and the random numbers stay the same.

    Tensors in tuples, lists, dicts and dataclasses are copied so if they are in pinned memory, as
    by `DataLoader(pin_memory=True)`, and have `least` bytes or more. All others are moved like by
    `to_device`, and so is an object with its own `to`.

    >>> Transfer("cuda").least
    1048576
    """

    def __init__(self, device: torch.device | str, *, least: int = MIB) -> None:
        """Prepare copies to a device; the stream is made for the first one that needs it.

        Args:
            device: Where to copy to.
            least: The bytes from which a copy takes longer than the streams' waiting for each
                other.

        Raises:
            TypeError: `least` is no whole number.
            ValueError: The device has no streams.
        """
        if type(least) is not int:
            raise TypeError(f"Transfer(least={least!r}): needs a whole number of bytes, as 2**20")
        self.device: torch.device = torch.device(device)
        self.least = least
        streams: Any = getattr(torch, self.device.type, None)  # torch.cuda; torch.cpu's do nothing
        if not hasattr(streams, "Stream"):
            raise ValueError(f"Transfer({str(device)!r}): needs a device with streams, like 'cuda'")
        self.streams = streams

    @cached_property
    def stream(self) -> Any:
        """The stream of the copies."""
        return self.streams.Stream(self.device)

    def __call__(self, nested: Nested) -> Nested:
        """Move a batch like `to_device` does."""
        copies: list[Tensor] = []
        there = _moved(nested, self.device, partial(self._put, copies=copies))
        if copies:
            computing = self.streams.current_stream(self.device)
            computing.wait_stream(self.stream)
            for each in copies:
                each.record_stream(computing)  # it must not be freed while that computes
        return there

    def _put(self, tensor: Tensor, copies: list[Tensor]) -> Tensor:
        # A tensor on a device may not be computed yet. From memory that is not pinned, a copy is
        # not faster on another stream, since the host takes part in it.
        if tensor.device.type != "cpu" or tensor.nbytes < self.least or not tensor.is_pinned():
            return moved(tensor, self.device)
        with self.streams.stream(self.stream):
            copy = moved(tensor, self.device)
        if copy is not tensor:
            copies.append(copy)
        return copy


def way_to(place: torch.device, given: object = None) -> Callable[[Any], Any] | None:
    """The function that moves batches to a device: None for the CPU, a `Transfer` for CUDA."""
    if place.type == "cpu":
        return None
    if isinstance(given, Transfer):
        return given
    return Transfer(place) if place.type == "cuda" else partial(to_device, device=place)


def _moved(nested: Nested, device: torch.device | str, put: Callable[[Tensor], Tensor]) -> Nested:
    batch: Any = nested
    if type(batch) is tuple and all(type(each) is Tensor for each in batch):  # as most batches
        return tuple(map(put, batch))  # type: ignore[return-value]

    def move(leaf: Any) -> Any:
        return put(leaf) if isinstance(leaf, Tensor) else leaf.to(device)

    return map_tensors(nested, move, is_leaf=_moves_itself)


def _moves_itself(nested: Any) -> bool:
    """True for tensors, but also for a PackedSequence and the encodings of tokenizers."""
    return callable(getattr(nested, "to", None))
