"""When the gradients of ranks are averaged: once a window, and not with every backward pass."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from .. import ranks
from ..modules.wrappers import uncompiled

WAYS = ("last", "each", "close")


@dataclass(frozen=True)
class Sync:
    """How the gradients of a model that is on several ranks are averaged.

    By itself such a model does it in every backward pass. What runs inside `off()` leaves it to a
    later one, or to `average`.
    """

    model: Module
    off: Callable[[], AbstractContextManager[Any]]
    at_close: bool
    """True if `average` does it when a window closes, and no backward pass."""

    @classmethod
    def of(cls, model: Module | None, way: str) -> Sync | None:
        """What averages the gradients of `model`; None if its backward passes always do.

        Raises:
            ValueError: `way` is none of the three, or this model cannot be averaged by hand.
        """
        if way not in WAYS:
            raise ValueError(f"sync={way!r}: needs one of {', '.join(map(repr, WAYS))}")
        if model is None or way == "each":
            return None
        model = uncompiled(model)
        if (off := _switch(model)) is None:
            return None
        sync = cls(model, off, at_close=way == "close")
        if sync.at_close and not sync.can_average:
            raise ValueError(
                f"sync='close' averages whole gradients, and {type(model).__name__} has parts of "
                "them on each rank; it is for DistributedDataParallel"
            )
        if sync.at_close:
            # Its forward pass would send buffers to ranks that make none, or that failed in one.
            model.require_forward_param_sync = False  # type: ignore[assignment]
        return sync

    @property
    def can_average(self) -> bool:
        """True if each rank has whole gradients."""
        return isinstance(self.model, DistributedDataParallel)

    def is_off(self, is_last: bool, may_end: bool) -> bool:
        """True if a forward and backward pass should leave averaging to a later one.

        Args:
            is_last: No further pass of the window follows.
            may_end: The data may end here; what is left over then can only be averaged by hand.
        """
        return self.at_close or not (is_last or (may_end and not self.can_average))

    def average(self) -> None:
        """Average over ranks what their backward passes have left, where one of them has any.

        Raises:
            RuntimeError: Each rank has parts of the gradients, which are not where they could be.
        """
        if not self.can_average:
            raise RuntimeError(
                "the data ended before its length said, and the gradients of the shards have not "
                "been averaged; give the true length, or sync='each'"
            )
        parameters = [each for each in self.model.parameters() if each.requires_grad]
        have = torch.tensor([each.grad is not None for each in parameters], dtype=torch.int32)
        have = torch.as_tensor(ranks.total(have.to(parameters[0].device)))
        used = [each for each, some in zip(parameters, have.tolist(), strict=True) if some]
        for _, group in groupby(sorted(used, key=_kind), key=_kind):
            _average(list(group))


def _switch(model: Module) -> Callable[[], AbstractContextManager[Any]] | None:
    if hasattr(model, "no_sync"):  # DistributedDataParallel, FullyShardedDataParallel
        return model.no_sync  # type: ignore[return-value]
    if not hasattr(model, "set_requires_gradient_sync"):
        return None

    @contextmanager
    def off() -> Generator[None]:  # fully_shard
        model.set_requires_gradient_sync(False)  # type: ignore[operator]
        try:
            yield
        finally:
            model.set_requires_gradient_sync(True)  # type: ignore[operator]

    return off


def _kind(parameter: Tensor) -> tuple[str, str]:
    return str(parameter.device), str(parameter.dtype)


def _average(parameters: list[Tensor]) -> None:
    """In one message."""
    for each in parameters:
        each.grad = torch.zeros_like(each) if each.grad is None else each.grad
    gradients = [each.grad for each in parameters if each.grad is not None]
    flat = torch.as_tensor(ranks.total(torch.cat([each.reshape(-1) for each in gradients])))
    flat = flat / ranks.world_size()
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))
