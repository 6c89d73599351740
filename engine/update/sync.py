"""When ranks average their gradients, and whether the gradients are then equal on all ranks."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from .. import ranks
from ..modules import (
    all_modules,
    averaged_by,
    fsdp_groups,
    parallel_of,
    parameters_of,
    sharded_in,
    uncompiled,
)
from ..state import State

WAYS = ("last", "close")


@dataclass(frozen=True)
class Sync:
    """Postpones the averaging that a model on several ranks does in every backward pass.

    Passes inside `off()` leave the averaging to a later backward pass, or to `average`.
    """

    model: Module
    off: Callable[[], AbstractContextManager[Any]]
    at_close: bool
    """True if `average` averages when a window closes, and no backward pass does."""

    @classmethod
    def of(cls, model: Module | None, way: str) -> Sync | None:
        """Postpone the averaging of `model`; None for a model of one rank.

        Raises:
            ValueError: `way` is unknown, or the model has no whole gradients to average by hand.
        """
        if way not in WAYS:
            raise ValueError(
                f"sync={way!r}: needs one of {', '.join(map(repr, WAYS))}; to average in each "
                "backward pass, write a step of your own without update.micro_batch(state)"
            )
        if model is None:
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

    def begin(self) -> None:
        """Drop the remains of a run that failed in the middle of a window or of a pass."""
        for each in sharded_in(self.model):
            # Of newer torch, which has nothing to reset before the first forward pass.
            with suppress(AttributeError):
                each.reset_iter_state()
            for module in each.modules():
                _drop_unsharded_gradients(module)

    def defers(self, is_last: bool, may_end: bool) -> bool:
        """True if a forward and backward pass should leave averaging to a later one.

        Args:
            is_last: No further pass of the window follows.
            may_end: The data may end here, and then `average` has to do it.
        """
        return self.at_close or not (is_last or (may_end and not self.can_average))

    def average(self) -> None:
        """Average over ranks all gradients that at least one rank has."""
        if not self.can_average:
            raise RuntimeError(
                "the data ended before its length said, and the gradients of the shards have not "
                "been averaged; give the true length, or write a step of your own without "
                "update.micro_batch(state), in which each backward pass averages"
            )
        parameters = [each for each in self.model.parameters() if each.requires_grad]
        have = torch.tensor([each.grad is not None for each in parameters], dtype=torch.int32)
        group = self.model.process_group
        have = torch.as_tensor(ranks.total(have.to(parameters[0].device), group=group))
        used = [each for each, some in zip(parameters, have.tolist(), strict=True) if some]
        for _, alike in groupby(sorted(used, key=_kind), key=_kind):
            _average(list(alike), group)


def is_wrapped(parameters: Iterable[Tensor], known: Iterable[Any]) -> bool:
    """True if a `DistributedDataParallel` or a module split by `fully_shard` holds one of these.

    Parameters do not refer to their wrapper. If no known object contains the wrapper, this searches
    all objects of the process, which takes 0.1 s or more.
    """
    wanted = set(map(id, parameters))
    near = (part for each in known if isinstance(each, Module) for part in each.modules())
    return _one_averages(wanted, near) or _one_averages(wanted, gc.get_objects())


def _switch(model: Module) -> Callable[[], AbstractContextManager[Any]] | None:
    if getattr(model, "static_graph", False) is True:
        return _refuse_static_graph
    if hasattr(model, "no_sync"):  # DistributedDataParallel
        return model.no_sync  # type: ignore[return-value]
    if not (sharded := sharded_in(model)):
        return None

    @contextmanager
    def off() -> Generator[None]:
        for each in sharded:
            each.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            for each in sharded:
                each.set_requires_gradient_sync(True)

    return off


def _refuse_static_graph() -> AbstractContextManager[Any]:
    """Raise an error in the place of the assertion with which torch's reducer ends the process."""
    raise ValueError(
        "DistributedDataParallel(static_graph=True) averages in each backward pass, and "
        "accumulate= and split= in the last one of a step alone; leave static_graph=True out, or "
        "accumulate=, split= and sync='close'"
    )


def _drop_unsharded_gradients(module: Any) -> None:
    """Drop the gradients that passes without averaging accumulated; torch has no public way."""
    for group in fsdp_groups(module):
        for each in group.fsdp_params:
            if hasattr(each, "_unsharded_param"):
                each._unsharded_param.grad = None
            if each.unsharded_accumulated_grad is not None:  # before torch 2.15
                each.unsharded_accumulated_grad = None


def _one_averages(wanted: set[int], objects: Iterable[Any]) -> bool:
    models = (each for each in objects if issubclass(type(each), Module) and _averages(each))
    return any(not wanted.isdisjoint(map(id, model.parameters())) for model in models)


def _averages(model: Module) -> bool:
    return parallel_of(model) is not None or sharded_in(model) == [model]


def _kind(parameter: Tensor) -> tuple[str, str]:
    return str(parameter.device), str(parameter.dtype)


def _average(parameters: list[Tensor], group: Any) -> None:
    """Average these, of one device and type, over the ranks of a group in one message."""
    for each in parameters:
        each.grad = torch.zeros_like(each) if each.grad is None else each.grad
    gradients = [each.grad for each in parameters if each.grad is not None]
    sent = torch.cat([each.reshape(-1) for each in gradients])
    flat = torch.as_tensor(ranks.total(sent, group=group)) / ranks.world_size(group)
    for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def are_alike(state: State[Any, Any]) -> bool:
    """True if all ranks have the same complete gradients in the step under way.

    This holds in a single process, and if a `DistributedDataParallel` among the engine's objects or
    handlers averages them over all ranks. It is checked once per run for each optimizer.
    """
    known, optimizer = state.step_under_way.are_alike, state.optimizer
    if optimizer not in known:
        known[optimizer] = not ranks.is_distributed() or _are_averaged(state, optimizer)
    return known[optimizer]


def _are_averaged(state: State[Any, Any], optimizer: Any) -> bool:
    """True if each backward pass averages the gradients of an optimizer's parameters."""
    engine = state.engine
    known = all_modules([*engine.objects.values(), *engine.handlers.values()])
    averaged = {id(each) for module in known for each in averaged_by(module)}
    return all(id(each) in averaged for each in parameters_of(optimizer) if each.requires_grad)
