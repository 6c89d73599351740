"""Gradients at addresses that stay the same: recorded parts write and read them there."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ..modules import copy_each


class Gradients:
    """One tensor for the gradient of each parameter, for as long as something is recorded."""

    def __init__(self) -> None:
        """Make no tensors yet."""
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}
        """By identity: parameters, and where their gradients are."""

    def adopt(self, parameters: Iterable[Tensor]) -> None:
        """Copy gradients that are elsewhere to their addresses, and let parameters have these.

        Raises:
            ValueError: A gradient is sparse.
        """
        kept: list[Tensor] = []
        given: list[Tensor] = []
        for each in parameters:
            gradient = each.grad
            if gradient is None:
                continue
            found = self._kept.get(id(each))
            if found is None or gradient is not found[1]:
                kept.append(own := self._of(each))
                given.append(gradient)
                each.grad = own
        if given:
            _copy(kept, given)

    def keep(self, parameters: Iterable[Tensor]) -> None:
        """Make the tensors now, so that no recording makes them."""
        for each in parameters:
            self._of(each)

    def _of(self, parameter: Tensor) -> Tensor:
        _, own = self._kept.get(id(parameter), (parameter, None))
        if own is None or own.dtype != parameter.dtype or own.device != parameter.device:
            own = torch.empty_like(parameter, requires_grad=False)
            self._kept[id(parameter)] = parameter, own
        return own


def _copy(into: list[Tensor], given: list[Tensor]) -> None:
    if any(each.layout is not torch.strided for each in given):
        raise ValueError(
            "compile='cuda-graphs': a gradient is sparse, whose size is another in each batch, and "
            "cannot be recorded: Embedding(..., sparse=False), or leave compile= out"
        )
    with torch.no_grad():
        copy_each(into, given)
