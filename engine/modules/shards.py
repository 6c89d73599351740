"""Tensors that a mesh of ranks holds together: FSDP's shards, and those of tensor parallelism."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TypeGuard

from torch import Tensor


def is_spread(tensor: object) -> TypeGuard[Any]:
    """True for a `DTensor`, of which this rank holds a part or a replica."""
    # Where no script has imported it, no tensor is of its kind; the import takes long.
    kind = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    return kind is not None and isinstance(tensor, kind)


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank holds, in the same memory; a plain tensor as it is."""
    # to_local() would be recorded for gradients, or make a view.
    return tensor._local_tensor if is_spread(tensor) else tensor


def locals_of(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The parts of these tensors that this rank holds."""
    return [local(each) for each in tensors]
