"""The arguments of `supervised` that a model on several ranks together does not allow."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from ..checks import refuse_wrappers
from ..modules import fully_sharded
from ..update import Update
from .check import PRECISIONS


def check_sharded_options(
    model: Module, optimizer: Optimizer | Update | None, precision: str, split: int | str | None
) -> None:
    """Refuse what would hang or train wrongly on a model split by `fully_shard`.

    Raises:
        ValueError: The model is wrapped in a way that is not supported, or two arguments do not go
            together.
    """
    refuse_wrappers([model])
    if not fully_sharded([model]):
        return
    if split is not None:
        raise ValueError(
            f"split={split!r} may cut a batch into more parts on one rank than on another, and "
            "each forward pass of a sharded model needs all ranks; make the batches smaller and "
            "accumulate= more of them"
        )
    for computes in sorted({each for each in map(_computes_in, model.modules()) if each}, key=str):
        asked = PRECISIONS[precision]
        if asked not in (None, computes):
            raise ValueError(
                f"precision={precision!r}, and the model computes in {_name(computes)} by its "
                "MixedPrecisionPolicy: leave precision= out, or the policy"
            )
        is_scaled = precision == "fp16" or (isinstance(optimizer, Update) and optimizer.scaler)
        if computes is torch.float16 and optimizer is not None and not is_scaled:
            raise ValueError(
                "the model computes in float16 by its MixedPrecisionPolicy, so that small "
                "gradients become 0 without a scaler: add precision='fp16', which brings one"
            )


def _computes_in(module: Module) -> torch.dtype | None:
    """The type in which FSDP's policy lets a module compute; torch has no public name for it."""
    state: Any = getattr(module, "_get_fsdp_state", None)
    return getattr(getattr(state and state(), "_mp_policy", None), "param_dtype", None)


def _name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
