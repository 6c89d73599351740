"""The `DistributedDataParallel` around a model."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from ..modules import uncompiled


def parallel_of(model: Module) -> DistributedDataParallel | None:
    """The `DistributedDataParallel` that a model is, also inside torch.compile; or None."""
    model = uncompiled(model)
    return model if isinstance(model, DistributedDataParallel) else None


@contextmanager
def without_sending_buffers(model: Module) -> Generator[None]:
    """Let a compiled model on several ranks send no buffers, so that no rank waits for others."""
    if (parallel := parallel_of(model)) is None:
        yield
        return
    sends: Any = parallel.require_forward_param_sync
    parallel.require_forward_param_sync = False
    try:
        yield
    finally:
        parallel.require_forward_param_sync = sends
