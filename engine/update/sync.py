"""When ranks average their gradients: once a window, not in every backward pass."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from .. import ranks
from ..modules import uncompiled

WAYS = ("last", "each", "close")


@dataclass(frozen=True)
class Sync:
    """Postpones the averaging that a model on several ranks does in every backward pass.

    Passes inside `off()` leave it to a later backward pass, or to `average`.
    """

    model: Module
    off: Callable[[], AbstractContextManager[Any]]
    at_close: bool
    """True if `average` does it when a window closes, and no backward pass does."""

    @classmethod
    def of(cls, model: Module | None, way: str) -> Sync | None:
        """Postpone the averaging of `model`; None if each of its backward passes is to average.

        Raises:
            ValueError: `way` is not one of the three, or the model does not allow it.
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
            # Its forward pass would wait for ranks that skip theirs or have failed in it.
            model.require_forward_param_sync = False  # type: ignore[assignment]
        return sync

    @property
    def can_average(self) -> bool:
        """True if each rank has whole gradients."""
        return isinstance(self.model, DistributedDataParallel)

    def defers(self, is_last: bool, may_end: bool) -> bool:
        """True if a forward and backward pass should leave averaging to a later one.

        Args:
            is_last: No further pass of the window follows.
            may_end: The data may end here, and then `average` has to do it.
        """
        return self.at_close or not (is_last or (may_end and not self.can_average))

    def average(self) -> None:
        """Average over ranks the gradients that at least one of them has.

        Raises:
            RuntimeError: Each rank has parts of the gradients, as with FSDP.
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


def is_wrapped(parameters: Iterable[Tensor]) -> bool:
    """True if a `DistributedDataParallel` holds one of these parameters.

    Parameters do not refer to it, so this looks through all objects of the process: 0.1 s or more.
    """
    wanted = set(map(id, parameters))
    models = (each for each in gc.get_objects() if issubclass(type(each), DistributedDataParallel))
    return any(not wanted.isdisjoint(map(id, model.parameters())) for model in models)


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
    """Average these, of one device and type, in one message."""
    for each in parameters:
        each.grad = torch.zeros_like(each) if each.grad is None else each.grad
    gradients = [each.grad for each in parameters if each.grad is not None]
    flat = torch.as_tensor(ranks.total(torch.cat([each.reshape(-1) for each in gradients])))
    flat = flat / ranks.world_size()
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))
