"""Training steps of one rank that no other rank takes part in."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch.nn import Module, SyncBatchNorm
from torch.nn.parallel import DistributedDataParallel

from ...engine import Engine, ranks

SHARDED = {"FullyShardedDataParallel", "FSDPModule"}


@contextmanager
def on_one_rank(engine: Engine[Any, Any]) -> Generator[None]:
    """Within a `with` block, no step sends anything to other ranks or waits for them.

    Without that, a rank that runs out of memory in the middle of a step would leave the others
    waiting for it.

    Raises:
        ValueError: The forward pass of a module needs the other ranks.
    """
    with ExitStack() as stack:
        if ranks.is_distributed():
            modules = [each for each in engine.objects.values() if isinstance(each, Module)]
            for parallel in _parallel(modules):
                sends = parallel.require_forward_param_sync
                stack.callback(setattr, parallel, "require_forward_param_sync", sends)
                parallel.require_forward_param_sync = False
                stack.enter_context(parallel.no_sync())
        stack.enter_context(ranks.alone())
        yield


def _parallel(modules: list[Module]) -> list[DistributedDataParallel]:
    """The wrappers around these modules, which do not know of their wrappers."""
    inner = [each for module in modules for each in module.modules()]
    talking = (each for each in inner if isinstance(each, SyncBatchNorm) or _is_sharded(each))
    if (found := next(talking, None)) is not None:
        raise ValueError(
            f"find_batch_size: the forward pass of {type(found).__name__} needs all ranks, and one "
            "that runs out of memory would leave the others waiting; look for the size in one "
            "process, with the module as it is without ranks"
        )
    own = set(map(id, inner))
    wrappers = (
        each for each in gc.get_objects() if issubclass(type(each), DistributedDataParallel)
    )
    return [each for each in wrappers if id(each.module) in own]


def _is_sharded(module: Module) -> bool:
    return not SHARDED.isdisjoint(each.__name__ for each in type(module).__mro__)
