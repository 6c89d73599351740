"""Whether ranks surely have the same gradients, so that what is found in them needs no message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from .. import ranks
from ..modules import all_modules
from ..state import State
from .gradients import parameters_of


def are_alike(state: State[Any, Any]) -> bool:
    """True if all ranks have the same complete gradients in the step under way.

    So it is in one process, and where a `DistributedDataParallel` among the engine's objects or
    handlers averages them over all ranks. It is found out once in a run for each optimizer.
    """
    known, optimizer = state.step_under_way.are_alike, state.optimizer
    if optimizer not in known:
        known[optimizer] = not ranks.is_distributed() or _are_averaged(state, optimizer)
    return known[optimizer]


def _are_averaged(state: State[Any, Any], optimizer: Any) -> bool:
    """True if each backward pass averages the gradients of an optimizer's parameters."""
    engine = state.engine
    known = all_modules([*engine.objects.values(), *engine.handlers.values()])
    averaged = {id(each) for module in known for each in _averaged_by(module)}
    return all(id(each) in averaged for each in parameters_of(optimizer) if each.requires_grad)


def _averaged_by(module: Module) -> Iterable[Tensor]:
    """The parameters whose gradients a module averages over all ranks in each backward pass."""
    if not isinstance(module, DistributedDataParallel):
        return ()
    # A hook may average over some ranks only, as those of local SGD do.
    has_hook = bool(module._comm_hooks)  # pyright: ignore
    if has_hook or ranks.world_size(module.process_group) < ranks.world_size():
        return ()
    left_out = module.parameters_to_ignore
    return [each for name, each in module.module.named_parameters() if name not in left_out]
